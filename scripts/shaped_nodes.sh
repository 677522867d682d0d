#!/usr/bin/env bash
# Nodes on this machine: network namespaces on one bridge, with links that send and receive at a limited rate.
#
#   shaped_nodes.sh up NODES MBIT   creates shaped0, shaped1, .. with the addresses 10.78.0.1, 10.78.0.2, ..
#   shaped_nodes.sh check           measures each link both ways, and fails if one is off by over 15 %
#   shaped_nodes.sh down            removes them
#
# Needs root, iproute2, python3, and a kernel with veth, bridges and sch_tbf. Programs run in a node by
# `ip netns exec shaped0 ..`, and gloo with GLOO_SOCKET_IFNAME=eth0. Ranks in one node use its loopback device.
set -euo pipefail
bridge=shapedbr

nodes() { ip netns list | awk '$1 ~ /^shaped[0-9]+$/ { print $1 }' | sort -V; }

down() {
    for node in $(nodes); do
        # Removing a namespace removes its device only later, and the name would be taken until then.
        ip link del "port_$node" 2>/dev/null || true
        ip netns del "$node"
    done
    ip link del "$bridge" 2>/dev/null || true
}

up() {
    down
    ip link add "$bridge" type bridge
    ip link set "$bridge" up
    for ((i = 0; i < $1; i++)); do
        node=shaped$i
        ip netns add "$node"
        ip link add "port_$node" type veth peer name eth0 netns "$node"
        ip link set "port_$node" master "$bridge" up
        ip -n "$node" addr add "10.78.0.$((i + 1))/24" dev eth0
        ip -n "$node" link set lo up
        ip -n "$node" link set eth0 up
        # A queue limits what is sent: the node's own sends, and at the bridge's port the sends to it.
        tc -n "$node" qdisc add dev eth0 root tbf rate "$2mbit" burst 128kb latency 50ms
        tc qdisc add dev "port_$node" root tbf rate "$2mbit" burst 128kb latency 50ms
    done
}

rate_of() { tc -n "$1" qdisc show dev eth0 | grep -oE 'rate [0-9]+Mbit' | grep -oE '[0-9]+'; }

# Sends for 2 s from one node to another, and prints the received Mbit/s.
measured() {
    ip netns exec "$2" timeout 20 python3 -c '
import socket, sys, time
server = socket.create_server(("", 7878))
print("ready", flush=True)
peer, size = server.accept()[0], 0
peer.recv(1)
start = time.monotonic()
while got := peer.recv(1 << 16):
    size += len(got)
print(round(size * 8 / 1e6 / (time.monotonic() - start)))' | {
        read -r _
        ip netns exec "$1" timeout 20 python3 -c '
import socket, sys, time
peer = socket.create_connection((sys.argv[1], 7878))
end = time.monotonic() + 2
while time.monotonic() < end:
    peer.sendall(bytes(1 << 16))' "10.78.0.$((${2#shaped} + 1))"
        cat
    }
}

check() {
    mapfile -t all < <(nodes)
    [ "${#all[@]}" -ge 2 ] || { echo "no two nodes: run shaped_nodes.sh up NODES MBIT first" >&2; exit 1; }
    failed=0
    for ((i = 0; i < ${#all[@]}; i++)); do
        from=${all[$i]} to=${all[$(((i + 1) % ${#all[@]}))]}
        rate=$(rate_of "$from") got=$(measured "$from" "$to")
        echo "$from to $to: $got of $rate Mbit/s"
        ((got * 100 >= rate * 85 && got * 100 <= rate * 115)) || failed=1
    done
    return "$failed"
}

case ${1:-} in
    up) up "${2:?NODES}" "${3:?MBIT}" ;;
    check) check ;;
    down) down ;;
    *) sed -n '2,9p' "$0"; exit 2 ;;
esac
