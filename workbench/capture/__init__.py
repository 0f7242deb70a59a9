"""Recording what a model computes, on either path. The only wing, with attribution, that imports torch."""
