package host

// checkTags checks that native XDP is not used with VLANs at a veth, which carries tags outside of
// the frames, and is used at a virtio card, which leaves them in the frames.
func (n *network) checkTags() {
	n.t.Helper()
	n.run(`
	trap 'ip link del tagged2; ip link del inner' EXIT
	eventually() {
		i=0
		until "$@"; do
			i=$((i + 1))
			[ $i -lt 300 ] || { echo "never: $*"; ip link; loxicmd get status; exit 1; }
			usleep 200000
		done
	}
	with() { ip link show $1 | grep -q xdp; }
	without() { ! with $1; }
	told() { loxicmd get status -o json | grep -q "XDP is not attached to $1: it has VLAN interfaces"; }
	shown() { loxicmd get port $1 -o json | grep -q "\"xdp\": *\"$2"; }
	ip link add inner type veth peer name outer
	ip link set inner up
	ip link set outer up
	eventually with inner
	ip link add tagged link inner type vlan id 30
	ip link add tagged2 link front type vlan id 30
	eventually without inner
	eventually told inner
	eventually shown inner "off: it has VLAN interfaces"
	with front
	shown front native
	ip link del tagged
	eventually with inner
	eventually shown inner native`)
}
