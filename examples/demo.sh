#!/usr/bin/env bash
# The main job on this machine: 336,776 flights from CSV files into a versioned dataset, by Spark, a query, and a cube.
# Run by `make demo`, from the checkout, with kubothek on the PATH. Everything it makes is under .demo/.
set -euo pipefail
cd "$(dirname "$0")/.."
bold='' plain=''
if [ -t 1 ]; then bold=$'\033[1m' plain=$'\033[0m'; fi
say() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }

say "1/7  the source files, and a Java for Spark"
python examples/fetch_flights.py .demo/sources
JAVA_HOME="$(python -m kubothek.local.java)" && export JAVA_HOME
echo "Java: $JAVA_HOME"

say "2/7  kubothek put: the sources into the store"
kubothek put -f examples/stores/local.yaml .demo/sources/* --to sources/

say "3/7  kubothek run: the manifests come true"
kubothek run -f examples/stores/local.yaml -f examples/flights

say "4/7  kubothek query: what lies in the store now"
kubothek query --store file:.demo/store "$(cat examples/flights.sql)"

say "5/7  a cube: who left more than two hours late in a gale, in which planes?"
mkdir -p .demo/cube
for name in flights weather planes airports; do
    kubothek query --store file:.demo/store --output csv "$(cat "examples/cube/$name.sql")" >".demo/cube/$name.csv"
done
kubothek put -f examples/stores/local.yaml .demo/cube/*.csv --to sources/cube/
kubothek run -f examples/stores/local.yaml -f examples/flights -f examples/cube
kubothek cube query --store file:.demo/store nyc --conditions "month = 1 AND wind_speed > 30 AND dep_delay > 120" \
    --payload-columns dep_delay,wind_speed,manufacturer,airport

say "6/7  a ledger: the register of planes, handed in twice, with 400 corrections and a retraction"
sed -e 's/AIRBUS INDUSTRIE/AIRBUS/' -e '/^N10156,/d' .demo/sources/planes.csv >.demo/planes-corrected.csv
kubothek put -f examples/stores/local.yaml .demo/planes-corrected.csv --to sources/
kubothek run -f examples/stores/local.yaml -f examples/flights -f examples/cube -f examples/ledger
kubothek log --odf --store file:.demo/store register
kubothek tail --store file:.demo/store register -n 4
kubothek query --store file:.demo/store "SELECT manufacturer, count(*) AS planes FROM register WHERE manufacturer LIKE 'AIRBUS%' GROUP BY 1"
kubothek query --store file:.demo/store --as-of 2 "SELECT manufacturer, count(*) AS planes FROM register WHERE manufacturer LIKE 'AIRBUS%' GROUP BY 1 ORDER BY 1"

say "7/7  derivatives: delays by month, carrier and wind, from two ledgers by SQL; then a correction comes in"
mkdir -p .demo/derivative
for name in departures winds; do
    kubothek query --store file:.demo/store --output csv "$(cat "examples/derivative/$name.sql")" >".demo/derivative/$name.csv"
done
sed -e 's/,"MQ",3944,853$/,"MQ",3944,13/' -e '/^2013-01-01.*,"UA",1545,/d' .demo/derivative/departures.csv >.demo/derivative/departures-corrected.csv
kubothek put -f examples/stores/local.yaml .demo/derivative/*.csv --to sources/derivative/
kubothek run -f examples/stores/local.yaml -f examples/derivative/delays.yaml
kubothek run -f examples/stores/local.yaml -f examples/derivative
kubothek tail --store file:.demo/store delays -n 4
kubothek lineage --store file:.demo/store delays
kubothek verify --store file:.demo/store --recursive delays

cat <<EOT

The files are in .demo/store: one directory a dataset, one a partition, Parquet inside.
What to try next:
  source .venv/bin/activate && export KUBOTHEK_STORE=file:$PWD/.demo/store
  kubothek get                                  # the datasets
  kubothek log flights                          # every commit of one
  kubothek query "SELECT month, count(*) FROM flights GROUP BY 1 ORDER BY 1"
  kubothek verify register                      # every hash of a ledger, every record
  kubothek lineage delays -o svg >delays.svg    # what is made of what
  kubothek cube info nyc                        # what a cube is made of
  kubothek run -f examples/stores/local.yaml -f examples/flights -f examples/changes   # changes, and all of it back
  make demo                                     # again: adds no row
  make demo-cluster                             # the same manifests on a real cluster
EOT
