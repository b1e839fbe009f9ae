"""Steps of parameters that are DTensors: shards, and sums that are reduced across processes."""
