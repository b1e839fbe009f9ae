"""Tensors of traced code: values, their algebra, and rules made of them, for any framework."""
