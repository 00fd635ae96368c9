module kubothek.io/tests/testcluster/prometheus-operator

go 1.26

require github.com/prometheus-operator/prometheus-operator v0.85.0
