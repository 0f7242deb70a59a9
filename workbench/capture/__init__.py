"""Recording what a model computes, on either path."""
