"""What runs in a training process, and the contract (`spec`, `names`, `catalog`) the other rooms share.

Nothing here imports streamlit or ray; tensorflow is imported only below `worker`, `workloads` and `datasets`.
"""
