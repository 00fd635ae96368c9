#!/usr/bin/env bash
# The demo on a real cluster: Helm, kubectl, Spark-on-Kubernetes and an S3 server. Same manifests as examples/demo.sh.
#   KUBOTHEK_HELM_ARGS   more arguments for `helm upgrade`, e.g. --set namespaces='{flights,analytics}'
set -euo pipefail
cd "$(dirname "$0")/.."
bold='' plain=''
if [ -t 1 ]; then bold=$'\033[1m' plain=$'\033[0m'; fi
say() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }

say "1/7  a cluster with an S3 server, and the images"
python -m tests.testcluster images
eval "$(python -m tests.testcluster env)" # KUBECONFIG, PATH with kubectl and helm, AWS_ENDPOINT_URL, AWS_*

say "2/7  the operator, by Helm"
kubectl create namespace flights --dry-run=client -o yaml | kubectl apply -f - >/dev/null
# The image's tag stays, so that only this tells Kubernetes of other code.
code=$(find operator/kubothek -type f -not -path '*/__pycache__/*' -print0 | sort -z | xargs -0 cat | sha256sum | cut -c 1-16)
# shellcheck disable=SC2086  # word splitting is wanted
helm upgrade --install kubothek charts/kubothek --namespace kubothek-system --create-namespace \
    --set image.tag=dev,jobImage.tag=dev --set-string podAnnotations.code="$code" --set 'namespaces={flights}' ${KUBOTHEK_HELM_ARGS:-} --wait --timeout=180s

say "3/7  the source files into the bucket"
python examples/fetch_flights.py .demo/sources
kubectl -n flights create secret generic lake-credentials --dry-run=client -o yaml \
    --from-literal=AWS_ACCESS_KEY_ID="$AWS_ACCESS_KEY_ID" \
    --from-literal=AWS_SECRET_ACCESS_KEY="$AWS_SECRET_ACCESS_KEY" | kubectl apply -f - >/dev/null
kubothek put -f examples/stores/cluster.yaml --endpoint "$AWS_ENDPOINT_URL" .demo/sources/* --to sources/

say "4/7  kubectl apply"
kubectl -n flights apply -f examples/stores/cluster.yaml -f examples/flights

await() { # KINDS…: until all are Ready; fails with what stands in the way
    SECONDS=0
    until kubectl -n flights wait --for=condition=Ready "$1" --all --timeout=10s 2>/dev/null; do
        kubectl -n flights get kcm
        if ((SECONDS > 600)) || kubectl -n flights get "kos,$1" -o json | grep -q '"type": "Stalled"'; then
            echo "something does not come true; its conditions say why:" >&2
            kubectl -n flights describe "kos,$1" >&2
            exit 1
        fi
    done
}

say "5/7  waiting for the commits (Spark starts a driver and an executor)"
await kcm,kds
kubectl -n flights get kds

say "6/7  a query over what lies in the bucket"
kubothek query --store s3://lake/warehouse --endpoint "$AWS_ENDPOINT_URL" "$(cat examples/flights.sql)"

say "7/7  a cube: who left more than two hours late in a gale, in which planes?"
mkdir -p .demo/cube
for name in flights weather planes airports; do
    kubothek query --store s3://lake/warehouse --endpoint "$AWS_ENDPOINT_URL" --output csv \
        "$(cat "examples/cube/$name.sql")" >".demo/cube/$name.csv"
done
kubothek put -f examples/stores/cluster.yaml --endpoint "$AWS_ENDPOINT_URL" .demo/cube/*.csv --to sources/cube/
kubectl -n flights apply -f examples/cube/nyc.yaml
await kcube,kcm,kq
kubectl -n flights get kcube,kds
kubothek cube query --store s3://lake/warehouse --endpoint "$AWS_ENDPOINT_URL" nyc \
    --conditions "month = 1 AND wind_speed > 30 AND dep_delay > 120" --payload-columns dep_delay,wind_speed,manufacturer,airport

cat <<EOT

What to try next (first: eval "\$(python -m tests.testcluster env)"):
  kubectl -n flights describe kcm flights
  kubothek log --store s3://lake/warehouse --endpoint $AWS_ENDPOINT_URL flights
  kubectl -n flights delete kcm flights && kubectl -n flights apply -f examples/flights   # adds no row
  make cluster-down
EOT
