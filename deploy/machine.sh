# shellcheck shell=bash
# What deploy/try and tests/run need of the machine they run on: packages, and a Docker daemon that answers.
# Source it; it runs nothing by itself. What cannot be had is named with the way to get it.

# missing COMMAND=PACKAGE...: the packages whose command is not there.
missing() {
    local pair
    for pair in "$@"; do
        command -v "${pair%%=*}" >/dev/null || printf '%s\n' "${pair#*=}"
    done | sort -u
}

# install_missing COMMAND=PACKAGE...: nothing is asked of the distribution when nothing is missing.
install_missing() {
    local packages
    mapfile -t packages < <(missing "$@")
    if [ ${#packages[@]} -gt 0 ]; then install_packages "${packages[@]}"; fi
}

install_packages() {
    local packages=("$@") log
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        printf 'missing here: %s. Install it: sudo apt-get install %s\n' "${packages[*]}" "${packages[*]}" >&2
        return 1
    fi
    printf 'installing %s\n' "${packages[*]}"
    log=$(mktemp)
    if ! { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}"; } \
        </dev/null >"$log" 2>&1; then
        tail -5 "$log" >&2
        rm -f "$log"
        printf 'could not be installed: %s. Install it: sudo apt-get install %s\n' "${packages[*]}" "${packages[*]}" >&2
        return 1
    fi
    rm -f "$log"
}

# A compiler whose recommended half, the files of the C library, was left out cannot link.
install_compiler() {
    install_missing cc=gcc || return 1
    if ! echo 'int main(void) { return 0; }' | cc -x c - -o /dev/null 2>/dev/null; then install_packages libc6-dev; fi
}

# The distribution's Docker. Newer ones ship the client in a package of its own.
install_docker() {
    install_missing dockerd=docker.io && install_missing docker=docker-cli
}

docker_answers() { timeout 10 docker version >/dev/null 2>&1; }

# wait_until SECONDS COMMAND...: 0 as soon as the command succeeds, 1 when the time is over.
wait_until() {
    local deadline=$((SECONDS + $1))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$deadline" ] || return 1
        sleep 0.2
    done
}

# start_dockerd LOG [OPTION...]: a daemon on the usual socket; its process id is left in dockerd_pid.
# A host without packet filter still runs sandboxes, which have no network: the second try does without.
start_dockerd() {
    local log=$1 options
    shift
    mount_cgroups
    for options in "" "--iptables=false --ip6tables=false --bridge=none"; do
        # shellcheck disable=SC2086  # a list of words
        setsid dockerd "$@" $options </dev/null >"$log" 2>&1 9>&- &
        dockerd_pid=$!
        if wait_until 60 dockerd_settled && docker_answers; then return; fi
        stop_dockerd
    done
    tail -5 "$log" >&2
    printf 'dockerd did not start (%s); start a Docker daemon by hand, then run this again\n' "$log" >&2
    return 1
}

dockerd_settled() { docker_answers || ! kill -0 "$dockerd_pid" 2>/dev/null; }

stop_dockerd() {
    [ -n "${dockerd_pid:-}" ] || return 0
    kill "$dockerd_pid" 2>/dev/null || true
    wait "$dockerd_pid" 2>/dev/null || true
    dockerd_pid=
}

# Where no init did it. dockerd wants to find the groups mounted.
mount_cgroups() {
    if [ -d /run/systemd/system ] || grep -q ' /sys/fs/cgroup' /proc/mounts; then return; fi
    install_missing cgroupfs-mount=cgroupfs-mount && cgroupfs-mount
}
