#!/bin/sh
# The init of a node, in its own namespaces of network, mounts and processes: it runs containerd,
# kubelet and kube-proxy, which end with it. Variables: see node.go.
set -eu
hostname "$NODE"
mount --make-rslave / # keep mounts out of the parent namespace
mount --make-rshared /
mount -t bpf bpf /sys/fs/bpf
for hidden in /run/containerd /var/lib/cni /var/log; do
	mkdir -p $hidden
	mount -t tmpfs node $hidden
done
mkdir -p "$DIR/lib" /var/lib/loxilb
mount --bind "$DIR/lib" /var/lib/loxilb

serve() { # NAME COMMAND...
	name=$1
	shift
	"$@" >>"$DIR/log/$name.log" 2>&1 &
}

serve containerd containerd --config "$DIR/containerd.toml"
until ctr --address "$DIR/containerd.sock" version >/dev/null 2>&1; do sleep 0.1; done
if [ ! -e "$DIR/imported" ]; then # a restarted node still has its images
	for image in $IMAGES; do
		ctr --address "$DIR/containerd.sock" --namespace k8s.io images import --all-platforms=false "$image"
	done >>"$DIR/log/images.log" 2>&1
	: >"$DIR/imported"
fi
serve kubelet "$PROGRAM" kubelet --config "$DIR/kubelet.yaml" --kubeconfig "$KUBELET_CONFIG" --hostname-override "$NODE" --node-ip "$ADDRESSES" \
	--root-dir "$DIR/kubelet" --cert-dir "$DIR/pki"
serve kube-proxy "$PROGRAM" kube-proxy --config "$DIR/proxy.yaml"
wait
