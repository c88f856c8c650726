"""Mirror descent with a potential of the user, and with the square of a norm."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
import pytest

import attsvm
from attsvm.datasets import random_problem
from attsvm.norms import Lp, schatten
from attsvm.optimizers import Potential, SquaredNorm, mirror_descent
from attsvm.training import Run


@dataclass(frozen=True)
class Hypentropy(Potential):
    beta: float = 0.1

    def gradient(self, x):
        return jnp.arcsinh(x / self.beta)

    def inverse(self, z):
        return self.beta * jnp.sinh(z)


OURS = Hypentropy()


@pytest.fixture
def problem():
    return random_problem(4, 5, 3, seed=0)


def weights(problem, steps=60, **options):
    init = np.random.default_rng(0).standard_normal((3, 3))
    return attsvm.train(problem, optimizer=mirror_descent(**options), steps=steps, init=init).weights


def test_the_potential_of_l3_is_l3_mirror_descent(problem):
    @dataclass(frozen=True)
    class Cubic(Potential):
        norm = Lp(3.0)

        def gradient(self, x):
            return jnp.sign(x) * x**2

        def inverse(self, z):
            return jnp.sign(z) * jnp.sqrt(jnp.abs(z))

    expected = weights(problem, p=3, learning_rate=0.1)
    np.testing.assert_allclose(weights(problem, potential=Cubic(), learning_rate=0.1), expected, rtol=1e-10)
    run = attsvm.train(problem, optimizer=mirror_descent(potential=Cubic()), steps=3)
    assert run.norm == Lp(3.0)


def test_each_step_moves_the_mirror_variable_by_the_gradient(problem):
    run = attsvm.train(
        problem,
        optimizer=mirror_descent(potential=OURS, learning_rate=0.01),
        steps=2,
        record=[0, 1],
        init=np.full((3, 3), 0.2),
    )
    before, after = run.history["weights"][:2]
    moved = np.arcsinh(after / OURS.beta) - np.arcsinh(before / OURS.beta)
    # the gradient is divided by its Frobenius norm
    assert np.linalg.norm(moved) == pytest.approx(0.01, rel=1e-10)
    assert run.norm is None
    vector = random_problem(4, 5, 3, seed=0, prompt=True)
    assert attsvm.train(vector, optimizer=mirror_descent(potential=OURS), steps=5).status == "finished"


def test_the_square_of_a_norm_leads_to_its_att_svm():
    problem = random_problem(3, 4, 4, seed=1)
    init = np.random.default_rng(0).standard_normal((4, 4)) / 2
    optimizer = mirror_descent(potential=SquaredNorm(schatten(1.5)), learning_rate=lambda k: 0.1 * (1 + k / 100))
    run = attsvm.train(problem, optimizer=optimizer, steps=1500, init=init)
    ratios = {
        name: attsvm.margin_ratio(problem, run.weights, run.selected, name) for name in ("schatten1.5", "nuclear", 2)
    }
    assert ratios["schatten1.5"] > 0.99
    assert max(ratios, key=ratios.get) == "schatten1.5"


def test_a_potential_is_found_by_its_import_path_and_a_run_continues(problem, tmp_path):
    optimizer = attsvm.optimizers.parse_optimizer("mirror_descent", potential="test_potential:OURS")
    run = attsvm.train(problem, optimizer=optimizer, steps=20)
    run.save(tmp_path / "run.npz")
    further = attsvm.train(problem, init=Run.load(tmp_path / "run.npz"), steps=10)
    whole = attsvm.train(problem, optimizer=optimizer, steps=30)
    np.testing.assert_array_equal(further.weights, whole.weights)


class NotInverse(Hypentropy):
    def inverse(self, z):
        return self.beta * jnp.sinh(z) * 1.001


class Falling(Hypentropy):
    def gradient(self, x):
        return -x

    def inverse(self, z):
        return -z


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "p: expected a value for mirror_descent"),
        ({"p": 2, "potential": OURS}, "potential: expected either potential or p, got both"),
        ({"potential": OURS, "relative": True}, "relative: expected False with a potential, got True"),
        ({"potential": NotInverse()}, r"potential: NotInverse: expected inverse\(gradient\(x\)\) = x"),
        ({"potential": Falling()}, "potential: Falling: expected the gradient of a strictly convex function"),
        ({"potential": 3}, "potential: expected a Potential"),
        ({"potential": "test_potential:missing"}, "potential: .* cannot be imported"),
    ],
)
def test_wrong_potentials_are_named(options, words):
    with pytest.raises(attsvm.ProblemError, match=words):
        mirror_descent(**options)
