"""The judges of gradients: derivatives of elementwise graphs, adjoints of linear ones."""
