"""Which back end a call takes by default, and what that costs beside the best one."""
