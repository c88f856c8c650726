"""
Survival times of bags
======================

Each bag contains five pictures of digits. The largest digit sets the hazard of an event, as one region of a slide may
set the hazard for a patient. Some times are censored: we know only that the event happened later.
``AttentionRegressor(loss="cox")`` sees bags, events and times, but not the digits.
"""

import matplotlib.pyplot as plt
import numpy as np

import attsvm

bags = attsvm.datasets.digit_bags(500, 300, seed=0)
generator = np.random.default_rng(0)


def events_and_times(digits):
    """Whether the event was observed, and the time of the event or of censoring, (n, 2)."""
    largest = digits.reshape(-1, 5).max(axis=1)
    time = generator.exponential(np.exp(-(largest - 7.0)))
    until = generator.exponential(1.0, len(time))
    return np.column_stack([time <= until, np.minimum(time, until)]), largest


y, _ = events_and_times(bags.train_digits)
y_test, largest = events_and_times(bags.test_digits)
regressor = attsvm.AttentionRegressor(loss="cox", random_state=0).fit(bags.train, y)
print(regressor.report(bags.test, y_test))

# %%
# The output is the logarithm of a hazard ratio. It grows with the largest digit in the bag.
risk = regressor.predict(bags.test)
shown = [digit for digit in range(10) if (largest == digit).sum() >= 5]
_, axis = plt.subplots(figsize=(3.25, 2.4), layout="constrained")
axis.boxplot([risk[largest == digit] for digit in shown], tick_labels=shown, showfliers=False)
axis.set_xlabel("largest digit of the bag")
axis.set_ylabel("log hazard ratio")
