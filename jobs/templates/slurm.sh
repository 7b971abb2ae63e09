#!/usr/bin/env bash
#SBATCH --job-name=corpusmill
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
#SBATCH --mem=128G
#SBATCH --time=12:00:00
#SBATCH --signal=B:TERM@120
# Ray on the nodes of an allocation, and a run on it: sbatch slurm.sh fineweb --input 'cc=/data/crawl/*.warc.gz' --out /data/out
#
# Every node sees the clone (with its .venv), OUT and the inputs at the same paths. What the time limit cut off, the same sbatch goes on with:
# two minutes before the limit the run is asked to stop after the tasks in work. Ray ends with its job steps.
set -euo pipefail

: "${CORPUSMILL:=$PWD/.venv/bin}" # the folder of the programs corpusmill, ray and python
cpus=${SLURM_CPUS_PER_TASK:-$(nproc)}
port=$((20000 + SLURM_JOB_ID % 10000)) # other jobs of the same node have other ports

# The token of this allocation's Ray: where only this user reads it, gone with the job.
token=$HOME/.corpusmill-ray-$SLURM_JOB_ID
(umask 077 && "$CORPUSMILL/python" -c 'import secrets; print(secrets.token_hex(32), end="")' >"$token")
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=$token RAY_USAGE_STATS_ENABLED=0

steps=()
finish() {
    for pid in "${steps[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait || true
    srun --overlap rm -rf "/tmp/ray-$SLURM_JOB_ID" || true
    rm -f "$token"
}
trap finish EXIT

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
address=$(srun --nodes=1 --ntasks=1 --nodelist="${nodes[0]}" hostname -I | awk '{print $1}')

srun --overlap --nodes=1 --ntasks=1 --nodelist="${nodes[0]}" --cpus-per-task="$cpus" \
    "$CORPUSMILL/ray" start --head --block --node-ip-address="$address" --port="$port" \
    --include-dashboard=false --num-cpus="$cpus" --temp-dir="/tmp/ray-$SLURM_JOB_ID" &
steps+=($!)
until (exec 3<>"/dev/tcp/$address/$port") 2>/dev/null; do
    kill -0 "${steps[0]}" || { echo "Ray did not start on ${nodes[0]}" >&2; exit 1; }
    sleep 1
done
if [ "${#nodes[@]}" -gt 1 ]; then
    others=$(IFS=,; echo "${nodes[*]:1}")
    srun --overlap --nodes=$((${#nodes[@]} - 1)) --ntasks=$((${#nodes[@]} - 1)) --nodelist="$others" --cpus-per-task="$cpus" \
        "$CORPUSMILL/ray" start --block --address="$address:$port" --num-cpus="$cpus" &
    steps+=($!)
fi

# A run counts the slots when it begins: wait until every node is there.
"$CORPUSMILL/python" - "$address:$port" "${#nodes[@]}" <<'PYTHON'
import sys, time
import ray

ray.init(address=sys.argv[1], log_to_driver=False)
deadline = time.monotonic() + 600
while (there := sum(node["Alive"] for node in ray.nodes())) < int(sys.argv[2]):
    if time.monotonic() > deadline:
        sys.exit(f"{there} of {sys.argv[2]} nodes joined Ray in ten minutes")
    time.sleep(2)
PYTHON

# In the background, so that the signal before the time limit reaches it through this shell.
RAY_ADDRESS=$address:$port "$CORPUSMILL/corpusmill" run "$@" --ray auto &
run=$!
trap 'kill -TERM "$run"' TERM
code=0
wait "$run" || code=$?
while kill -0 "$run" 2>/dev/null; do # the signal ended `wait`, not the run
    code=0
    wait "$run" || code=$?
done
exit "$code"
