"""Attribution: which module is wrong, who is wrong, why, and the proof by experiment."""
