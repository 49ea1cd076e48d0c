"""The sum is to be a tenth of the step, not of the computing."""

images = 20 / 3 * 8
