"""Between a page and a training process: the queue, the engines, the records and the analyses."""
