#!/usr/bin/env bash
# The demo on a real cluster: Helm, kubectl, Spark-on-Kubernetes and an S3 server. Same manifests as examples/demo.sh.
#   KUBOTHEK_HELM_ARGS   more arguments for `helm upgrade`, e.g. --set namespaces='{flights,analytics}'
set -euo pipefail
cd "$(dirname "$0")/.."
say() { printf '\n\033[1m%s\033[0m\n' "$*"; }

say "1/6  a cluster with an S3 server, and the images"
python -m tests.cluster images
eval "$(python -m tests.cluster env)" # KUBECONFIG, PATH with kubectl and helm, AWS_ENDPOINT_URL, AWS_*

say "2/6  the operator, by Helm"
kubectl create namespace flights --dry-run=client -o yaml | kubectl apply -f - >/dev/null
# shellcheck disable=SC2086  # word splitting is wanted
helm upgrade --install kubothek charts/kubothek --namespace kubothek-system --create-namespace \
    --set image.tag=dev,jobImage.tag=dev --set 'namespaces={flights}' ${KUBOTHEK_HELM_ARGS:-} --wait --timeout=180s

say "3/6  the source files into the bucket"
python examples/fetch_flights.py .demo/sources
kubectl -n flights create secret generic lake-credentials --dry-run=client -o yaml \
    --from-literal=AWS_ACCESS_KEY_ID="$AWS_ACCESS_KEY_ID" \
    --from-literal=AWS_SECRET_ACCESS_KEY="$AWS_SECRET_ACCESS_KEY" | kubectl apply -f - >/dev/null
kubothek put -f examples/stores/cluster.yaml --endpoint "$AWS_ENDPOINT_URL" .demo/sources/* --to sources/

say "4/6  kubectl apply"
kubectl -n flights apply -f examples/stores/cluster.yaml -f examples/flights

say "5/6  waiting for the commits (Spark starts a driver and an executor)"
SECONDS=0
until kubectl -n flights wait --for=condition=Ready kcm,kds --all --timeout=10s 2>/dev/null; do
    kubectl -n flights get kcm
    if ((SECONDS > 600)) || kubectl -n flights get kos,kds,kcm -o json | grep -q '"type": "Stalled"'; then
        echo "something does not come true; its conditions say why:" >&2
        kubectl -n flights describe kos,kds,kcm >&2
        exit 1
    fi
done
kubectl -n flights get kds

say "6/6  a query over what lies in the bucket"
kubothek query --store s3://lake/warehouse --endpoint "$AWS_ENDPOINT_URL" "$(cat examples/flights.sql)"

cat <<EOT

What to try next (first: eval "\$(python -m tests.cluster env)"):
  kubectl -n flights describe kcm flights
  kubothek log --store s3://lake/warehouse --endpoint $AWS_ENDPOINT_URL flights
  kubectl -n flights delete kcm flights && kubectl -n flights apply -f examples/flights   # adds no row
  make cluster-down
EOT
