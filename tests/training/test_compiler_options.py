"""What the compiler does with the loops of a slice of trials."""

import jax
import jax.numpy as jnp
import pytest

from attsvm._utils.jax_devices import compiler_options
from attsvm._utils.threads import num_threads


def divides_loops(num_trials: int) -> bool:
    """Whether a loop with many operations for each entry is divided between the cores."""
    costly = jax.jit(lambda x: jnp.tanh(jnp.cosh(x) ** 0.3) ** 0.7)
    lowered = costly.lower(jax.ShapeDtypeStruct((512, 512), jnp.float32))
    return "outer_dimension_partitions" in lowered.compile(compiler_options=compiler_options(num_trials)).as_text()


@pytest.mark.skipif(num_threads() == 1, reason="needs two cores")
def test_loops_are_divided_between_the_cores_for_a_single_trial_alone() -> None:
    assert divides_loops(1)
    assert not divides_loops(64)
