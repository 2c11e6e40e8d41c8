#!/bin/bash
# Train on two machines of eight GPUs under Slurm, from an environment that has Subtle; a verb and its words follow:
#
#     sbatch "$(subtle path cluster/slurm.sh)" stage2 stage2_end_to_end_4xa100.yaml --output_dir /shared/end_to_end
#
# What your cluster wants otherwise stands before the file: sbatch --nodes=1 --account=... --partition=... slurm.sh ...
#
# Slurm starts each process by itself, with the variables that `accelerate launch` would set: a launcher of several ends
# with status 1 whatever they end with, and hands on no SIGUSR1. Ten minutes before the time limit every process gets
# SIGUSR1; a checkpoint is written after the step, and all end with status 75: the job is put back into the queue and
# goes on from there. Any other status ends it.
#SBATCH --job-name=subtle
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=12
#SBATCH --mem=0
#SBATCH --time=24:00:00
#SBATCH --signal=USR1@600
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out

if [ $# -eq 0 ]; then
    echo "name a verb and its words: sbatch $0 stage2 stage2_4xa100.yaml" >&2
    exit 2
fi
trap : TERM # preemption tells the processes, too; this script outlives them

MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_ADDR MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000)) WORLD_SIZE=$SLURM_NTASKS
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

# --wait: a process that fails leaves the others waiting for it; they are ended so many seconds later.
# shellcheck disable=SC2016 # each process expands its own
srun --wait=120 bash -c 'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID exec "$@"' rank subtle "$@"
status=$?
if [ "$status" -eq 75 ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
