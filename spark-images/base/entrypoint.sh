#!/bin/bash
# The entry point of Spark's pods.
#
#   driver COMMAND...   run the command: Kubothek's own driver pods
#   executor            run an executor; Spark's Kubernetes scheduler describes it in the environment
#   anything else       run it as it is
set -euo pipefail

case "${1:-}" in
driver)
    shift
    exec "$@"
    ;;
executor)
    # Spark numbers the JVM's options: SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, ...
    options=()
    for ((number = 0; ; number++)); do
        name="SPARK_JAVA_OPT_${number}"
        [[ -v "${name}" ]] || break
        options+=("${!name}")
    done
    exec "${JAVA_HOME}/bin/java" "${options[@]}" \
        "-Xms${SPARK_EXECUTOR_MEMORY}" "-Xmx${SPARK_EXECUTOR_MEMORY}" \
        -cp "${SPARK_CONF_DIR:-${SPARK_HOME}/conf}:${SPARK_CLASSPATH:+${SPARK_CLASSPATH}:}${SPARK_HOME}/jars/*" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "${SPARK_DRIVER_URL}" \
        --executor-id "${SPARK_EXECUTOR_ID}" \
        --cores "${SPARK_EXECUTOR_CORES}" \
        --app-id "${SPARK_APPLICATION_ID}" \
        --hostname "${SPARK_EXECUTOR_POD_IP}" \
        --resourceProfileId "${SPARK_RESOURCE_PROFILE_ID}" \
        --podName "${SPARK_EXECUTOR_POD_NAME}"
    ;;
*)
    exec "$@"
    ;;
esac
