"""Optimizers and schedulers with the class names, arguments and configs of other libraries."""
