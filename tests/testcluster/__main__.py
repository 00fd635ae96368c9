"""python -m tests.testcluster <check|up|down|images|s3|env|logs>"""

import argparse
import shlex
import sys
from collections.abc import Callable

from tests.testcluster.ensure import ensure_cluster, find_cluster, why_no_cluster
from tests.testcluster.native import NativeCluster
from tests.testcluster.steps import CommandError, report, step

LOG_LINES = 100


def check() -> None:
    """fail if this machine can have no cluster"""
    if reason := why_no_cluster():
        raise CommandError(reason)


def up() -> None:
    """bring the cluster up; a no-op if it is"""
    with step("cluster up"):
        cluster = ensure_cluster()
    report(f"{cluster.kubectl} --kubeconfig {cluster.kubeconfig} get nodes")
    report('or, for a shell: eval "$(python -m tests.testcluster env)"')


def down() -> None:
    """remove the cluster; cached builds and images stay"""
    with step("cluster down"):
        find_cluster().down()


def images() -> None:
    """bring the cluster up, build the project's images and bring them into it"""
    with step("cluster and images"):
        ensure_cluster(images=True)


def s3() -> None:
    """install the S3 server again and print where it is"""
    cluster = ensure_cluster()
    cluster.deploy_s3()
    print(f"in the cluster: {cluster.s3_endpoint}")
    print(f"from the host:  {cluster.s3_host_endpoint}")
    print(f"bucket {cluster.s3_bucket}, access key {cluster.s3_access_key}, secret key {cluster.s3_secret_key}")


def env() -> None:
    """print what a shell needs to use the cluster"""
    cluster = find_cluster()
    for name, value in cluster.environment().items():
        print(f"export {name}={shlex.quote(value)}")
    print(f'export PATH="{cluster.kubectl.parent}:{cluster.helm.parent}:$PATH"')


def logs() -> None:
    """print the end of each component's log"""
    cluster = find_cluster()
    if not isinstance(cluster, NativeCluster):
        raise CommandError("a kind cluster's logs: kind export logs --name kubothek")
    for name, tail in cluster.log_tails(LOG_LINES).items():
        print(f"==> {name}\n{tail}\n")


COMMANDS: dict[str, Callable[[], None]] = {
    command.__name__: command for command in (check, up, down, images, s3, env, logs)
}


def main() -> int:
    """Run the command named on the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.testcluster", description="The cluster of tests and demos.")
    subparsers = parser.add_subparsers(dest="command", required=True)
    for name, command in COMMANDS.items():
        subparsers.add_parser(name, help=command.__doc__)
    try:
        COMMANDS[parser.parse_args().command]()
    except (CommandError, TimeoutError, RuntimeError, OSError) as error:
        report(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
