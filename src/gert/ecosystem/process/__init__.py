"""Start, feed, capture and end processes: the only place that starts one."""
