"""Every metric, param, tag and artifact name, shared by the process that writes and the code that reads.

A name is written out here once. Times are in seconds of wall clock, taken after the device has finished.
"""

from enum import StrEnum

EXPERIMENT = "speedup-lab"


class RunStatus(StrEnum):
    """A run's status, with MLflow's own values."""

    SCHEDULED = "SCHEDULED"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    KILLED = "KILLED"

    @property
    def is_terminal(self) -> bool:
        """Whether a run with this status will never change again."""
        return self in (RunStatus.FINISHED, RunStatus.FAILED, RunStatus.KILLED)


class Metric:
    """Metric names. Those of the model (`loss`, `accuracy`, ...) keep Keras's names; step = epoch, from 0."""

    LOSS = "loss"
    ACCURACY = "accuracy"
    VAL_PREFIX = "val_"
    VAL_LOSS = "val_loss"
    VAL_ACCURACY = "val_accuracy"

    # Once a run.
    TIME_QUEUE = "time/queue"  # submitted -> process started
    TIME_STARTUP = "time/startup"  # process started -> TensorFlow imported, devices and strategy set up
    TIME_DATA = "time/data"  # data set read, checked and held where the loop reads it
    TIME_BUILD = "time/build"  # model, optimizer and metric state created
    TIME_FIRST_STEP = "time/first_step"  # first call of one step: tracing and compiling included
    TIME_TOTAL = "time/total"  # process started -> training ended

    # Once a run, measured after it (training.worker.diagnosis); not for a run of a single epoch.
    TIME_ALL_REDUCE = "time/all_reduce"  # one all-reduce of the model's gradients over all replicas
    TIME_STEP_ONE_EXAMPLE = "time/step_one_example"  # one steady step with a single example per replica

    # Once an epoch.
    TIME_EPOCH_TRAIN = "time/epoch_train"
    TIME_EPOCH_VALIDATION = "time/epoch_validation"
    TIME_INPUT_WAIT = "time/input_wait"
    EXAMPLES_PER_SECOND = "throughput/examples_per_second"
    WORKER_THROUGHPUT = "throughput/worker_{index}"  # of several: its own real examples over its own time in steps

    # Once a window of `steps_per_execution` steps; step = training steps done when the window ended.
    WINDOW = "throughput/window"

    # Of this run's own processes and devices, by MLflow's names.
    SYSTEM_PREFIX = "system/"
    SYSTEM_CPU = "system/cpu_utilization_percentage"  # of this run's processes, 100 = all the CPUs it was given
    SYSTEM_MEMORY = "system/system_memory_usage_megabytes"  # resident, of this run's processes together
    SYSTEM_PEAK_MEMORY = "system/peak_process_memory_megabytes"  # the largest single process so far
    SYSTEM_GPU_UTILIZATION = "system/gpu_{index}_utilization_percentage"
    SYSTEM_GPU_MEMORY = "system/gpu_{index}_memory_usage_megabytes"
    GPU_PEAK_MEMORY = "system/gpu_{index}_peak_memory_megabytes"  # TensorFlow's own figure for its allocator

    # Of each of several workers, where it is on the supervisor's host.
    WORKER_CPU = "system/worker_{index}_cpu_percentage"  # 100 = all the CPUs it was given
    WORKER_MEMORY = "system/worker_{index}_memory_megabytes"  # resident, with its descendants

    # What may have disturbed the run, on the supervisor's host and the run's GPUs.
    OTHERS_CPU = "system/other_processes_cpu_percentage"  # CPU use outside the run, 100 = all CPUs of the host
    RUNNABLE_THREADS = "system/runnable_threads_per_cpu"  # at the moment of the sample
    CPU_STEAL = "system/cpu_steal_percentage"  # CPU time the hypervisor gave to others, 100 = all of the host's
    CPU_THROTTLED = "system/cpu_throttled_percentage"  # held back by a control group's quota, 100 = one CPU throughout
    GPU_OTHERS = "system/gpu_{index}_other_processes"  # processes of others with a context on the GPU
    GPU_CLOCK = "system/gpu_{index}_sm_clock_mhz"  # only while it works: an idle GPU clocks down
    GPU_THROTTLED = "system/gpu_{index}_throttled"  # 1 where power or heat holds its clocks down, else 0


class Tag:
    """Tag names. MLflow's own keep their prefix; ours describe the environment or the run's life."""

    REASON = "reason"  # why a run is FAILED or KILLED, or waits: one line
    NOTICE = "notice"  # what a reader should know though the run went on (a shortened param, NaN at an epoch, ...)
    CANCEL_REQUESTED = "cancel_requested"
    ENGINE_HANDLE = "engine_handle"
    SUBMISSION = "submission"  # one form or command submission: the same token never starts two runs
    SIMULATED = "simulated"  # "true" when the devices are logical devices
    PHASE = "phase"  # what a live run is doing: see Phase
    RESTARTED_FROM = "restarted_from"  # id of the run whose spec this one was started from

    # Who.
    USER = "mlflow.user"
    NOTE = "mlflow.note.content"
    GROUP = "group"
    USER_TAG_PREFIX = "tag."  # tags that a person typed
    PLAN = "tag.plan"  # one of these: which ready-made experiment made the run

    # Asked and seen.
    DEVICES_ASKED = "devices_asked"
    DEVICES_SEEN = "devices_seen"
    REPLICAS_IN_SYNC = "replicas_in_sync"
    JIT_COMPILE = "jit_compile_resolved"
    PER_REPLICA_BATCH_SIZE = "per_replica_batch_size"
    STEPS_PER_EPOCH = "steps_per_epoch"
    EXAMPLES_PER_EPOCH = "examples_per_epoch"
    VALIDATION_EXAMPLES = "validation_examples"
    PARAMETERS = "model_parameters"
    PROFILER = "profiler"  # "true" when TensorFlow's profiler was on while the run trained
    ONEDNN = "onednn"  # "true" when TensorFlow computed with oneDNN's kernels on the CPU

    # Environment.
    PYTHON = "env.python"
    TENSORFLOW = "env.tensorflow"
    KERAS = "env.keras"
    NUMPY = "env.numpy"
    CUDA = "env.cuda"
    CUDNN = "env.cudnn"
    GIT_COMMIT = "mlflow.source.git.commit"
    CPU_MODEL = "env.cpu_model"
    CPU_COUNT = "env.cpu_count"  # that the run may use, all workers together
    GPU_MODEL = "env.gpu_model"
    GPU_IDS = "env.gpu_ids"  # "GPU:0 = physical 5 (GPU-<uuid>)", one a line
    DRIVER = "env.driver"
    HOST = "env.host"
    DATASET_DIGEST = "dataset_digest"
    DATASET_SOURCE = "dataset_source"


class Phase(StrEnum):
    """What a live run is doing, in the order it happens."""

    STARTING = "starting"
    LOADING_DATA = "loading data"
    BUILDING = "building the model"
    COMPILING = "first step (tracing and compiling)"
    TRAINING = "training"
    VALIDATING = "validating"
    SAVING = "saving"
    MEASURING = "measuring"
    ENDED = "ended"


class Artifact:
    """Artifact paths inside a run."""

    SPEC = "spec.json"
    ENVIRONMENT = "environment.json"
    PARAMS = "params.json"  # every param at full length, where MLflow had to shorten one
    LOG_DIR = "logs"  # logs/worker-0.log, ...: what a training process printed, placement lines excluded
    PLACEMENT_DIR = "placement"
    PLACEMENT_TABLE = "placement/placement.parquet"
    PLACEMENT_LOG = "placement/placement.log.gz"
    MODEL_DIR = "model"


FROM_PTX = "jit-compiled from PTX"
"""TensorFlow says so of a GPU that it has no kernels for: they are compiled at first use, in up to half an hour."""

PLACEMENT_COLUMNS = ("name", "op_type", "device", "source", "role", "layer", "count")
"""Columns of the placement table. `device` is short (`CPU:0`), `source` is `graph` or `eager`, `role` is `input` or
`compute`, `layer` is the Keras layer (empty where none), `count` the number of times the line was seen."""
