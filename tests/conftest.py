"""Settings of the whole suite: how much Hypothesis draws."""

import os

from hypothesis import HealthCheck, settings

# Compiling makes single examples slow without making them wrong, so nothing has a deadline.
settings.register_profile("default", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", settings.get_profile("default"), max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
