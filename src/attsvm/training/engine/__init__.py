"""The compiled part of training: objective, softmax pooling, mini-batches and trials."""
