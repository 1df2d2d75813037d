package rig

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"loxilb/test/netnstest"
)

//go:embed node.sh
var nodeScript string

// endPatience is how long the kernel may take to end the processes of a node.
const endPatience = 20 * time.Second

// Node is a machine of a cluster: containerd, kubelet and kube-proxy in their own namespaces.
type Node struct {
	*netnstest.Host
	cluster *Cluster
	number  int
	dir     string
	options ClusterOptions
	process *netnstest.Process // unshare, the parent of the node's init
}

func newNode(host *netnstest.Host, c *Cluster, number int, o ClusterOptions) *Node {
	return &Node{Host: host, cluster: c, number: number, dir: filepath.Join(c.dir, host.Name), options: o}
}

// Start starts the node, for the first time or after Kill, and waits until it is ready.
func (n *Node) Start(ctx context.Context) error {
	kubelet, err := n.cluster.Kubeconfig("system:node:"+n.Name, "system:nodes")
	if err != nil {
		return err
	}
	if err := errors.Join(n.write(), makeCgroups(n.Namespace)); err != nil {
		return fmt.Errorf("prepare node %s: %w", n.Name, err)
	}
	n.process, err = n.Host.Start(netnstest.Command{
		Args: []string{"unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", nodeScript},
		Env: []string{
			"DIR=" + n.dir, "NODE=" + n.Name, "PROGRAM=" + n.cluster.program, "KUBELET_CONFIG=" + kubelet,
			"IMAGES=" + strings.Join(n.options.Images, " "), "ADDRESSES=" + strings.Join(n.Addresses(), ","),
		},
	})
	if err != nil {
		return err
	}
	return n.waitReady(ctx)
}

// Addresses returns the node's addresses in the nodes' network, IPv4 first.
func (n *Node) Addresses() []string {
	address := fmt.Sprintf(nodeAddress, n.number)
	if n.options.IPv4Only {
		return []string{address}
	}
	return []string{address, v6(address).String()}
}

// waitReady waits until the node has the condition Ready.
func (n *Node) waitReady(ctx context.Context) error {
	for {
		ready, err := n.isReady(ctx)
		if err == nil && ready {
			return nil
		}
		select {
		case <-n.process.Done():
			return fmt.Errorf("node %s ended before it was ready: %s", n.Name, n.process.Output())
		case <-ctx.Done():
			return fmt.Errorf("node %s is not ready (%w); its logs are in %s", n.Name, errors.Join(ctx.Err(), err), n.dir)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// isReady reports whether the node has the condition Ready.
func (n *Node) isReady(ctx context.Context) (bool, error) {
	var node struct {
		Status struct {
			Conditions []struct{ Type, Status string }
		}
	}
	if err := n.cluster.Get(ctx, "/api/v1/nodes/"+n.Name, &node); err != nil {
		return false, err
	}
	for _, c := range node.Status.Conditions {
		if c.Type == "Ready" {
			return c.Status == "True", nil
		}
	}
	return false, nil
}

// Kill ends all processes of the node at once, as a power failure would. It also removes addresses
// that programs have added to lo, and the rules of kube-proxy. Interfaces stay.
//
// After a power failure, a daemon knows by the machine's boot ID and by its network namespace that
// it is no longer MASTER. Both stay the same here, so Kill empties loxilb's state directory
// instead.
func (n *Node) Kill() {
	n.process.Kill()
	_, _ = n.Host.Run("ip", "address", "flush", "dev", "lo", "scope", "global")
	_, _ = n.Host.Run("nft", "flush", "ruleset")
	_ = os.RemoveAll(filepath.Join(n.dir, "lib"))
}

// Logs returns the log files of a namespace's containers, by pod and container, including those of
// deleted pods that an earlier call has found.
func (n *Node) Logs(namespace string) (map[string]string, error) {
	found, err := filepath.Glob(filepath.Join(n.dir, "log", "pods", namespace+"_*", "*", "*.log"))
	if err != nil {
		return nil, err
	}
	kept := filepath.Join(n.dir, "log", "kept")
	if err := os.MkdirAll(kept, 0o755); err != nil {
		return nil, err
	}
	for _, log := range found { // NAMESPACE_POD_UID/CONTAINER/COUNT.log
		dir, count := filepath.Split(log)
		pod := strings.Split(filepath.Base(filepath.Dir(filepath.Clean(dir))), "_")[1]
		err := os.Link(log, filepath.Join(kept, pod+"."+filepath.Base(dir)+"."+count))
		if err != nil && !errors.Is(err, os.ErrExist) {
			return nil, err
		}
	}
	files, err := os.ReadDir(kept)
	logs := map[string]string{}
	for _, f := range files {
		logs[strings.TrimSuffix(f.Name(), ".log")] = filepath.Join(kept, f.Name())
	}
	return logs, err
}

// SetConnected switches the node's port of the LAN on or off.
func (n *Node) SetConnected(on bool) error {
	state := "down"
	if on {
		state = "up"
	}
	out, err := n.cluster.fabric.Run("ip", "link", "set", portOf(n.Host), state)
	if err != nil {
		return fmt.Errorf("port of node %s: %w: %s", n.Name, err, out)
	}
	return nil
}

// IsRunning reports whether the node was started and not killed.
func (n *Node) IsRunning() bool {
	select {
	case <-n.process.Done():
		return false
	default:
		return true
	}
}

// remove ends the node and removes its control groups.
func (n *Node) remove() {
	if n.process == nil {
		return
	}
	n.Kill()
	for deadline := time.Now().Add(endPatience); removeCgroups(n.Namespace) != nil && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
	}
}

// Run runs a program in all namespaces of the node, as a shell on it would.
func (n *Node) Run(args ...string) (string, error) {
	init, err := n.init()
	if err != nil {
		return "", err
	}
	return n.Host.Run(append([]string{"nsenter", "--target", init, "--mount", "--uts", "--pid", "--net", "--"}, args...)...)
}

// init returns the process id of the node's init, as this process sees it.
func (n *Node) init() (string, error) {
	parent := strconv.Itoa(n.process.Pid())
	text, err := os.ReadFile(filepath.Join("/proc", parent, "task", parent, "children"))
	children := strings.Fields(string(text))
	if err == nil && len(children) == 0 {
		err = errors.New("it has no process")
	}
	if err != nil {
		return "", fmt.Errorf("node %s is not running: %w", n.Name, err)
	}
	return children[0], nil
}

// write writes the node's configuration files.
func (n *Node) write() error {
	proxy, err := n.cluster.Kubeconfig("system:kube-proxy")
	if err != nil {
		return err
	}
	text := strings.NewReplacer("$DIR", n.dir, "$NODE", n.Name, "$CGROUP", n.Namespace, "$PROXY", proxy,
		"$PODS", podNetworks, "$PLUGIN", n.plugin(), "$V4", podNetworksOf(n.number)[0].String(), "$V6", podNetworksOf(n.number)[1].String())
	for _, dir := range []string{"log", "cni", "lib"} {
		err = errors.Join(err, os.MkdirAll(filepath.Join(n.dir, dir), 0o755))
	}
	for name, template := range map[string]string{
		"containerd.toml": containerdConfig, "kubelet.yaml": kubeletConfig, "proxy.yaml": proxyConfig, "cni/10-rig.conflist": cniConfig, "resolv.conf": "",
	} {
		err = errors.Join(err, os.WriteFile(filepath.Join(n.dir, name), []byte(text.Replace(template)), 0o644))
	}
	return err
}

// plugin returns the CNI plugin's name with its own options.
func (n *Node) plugin() string {
	if n.options.CNI == "ptp" {
		return `"type": "ptp"`
	}
	return `"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true`
}

const cniConfig = `{
  "cniVersion": "1.0.0", "name": "rig",
  "plugins": [{
    $PLUGIN, "ipMasq": false,
    "ipam": {
      "type": "host-local", "dataDir": "$DIR/ipam",
      "ranges": [[{"subnet": "$V4"}], [{"subnet": "$V6"}]],
      "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]
    }
  }]
}
`

// containerdConfig does not change the OOM killer's scores, which needs a capability that
// containers and virtual machines of tests may lack.
const containerdConfig = `version = 2
root = "$DIR/containerd"
state = "$DIR/state"
oom_score = 0
[grpc]
  address = "$DIR/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$DIR/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
`

const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
failSwapOn: false
cgroupDriver: cgroupfs
cgroupRoot: /$CGROUP
enforceNodeAllocatable: [pods]
oomScoreAdj: 0
maxOpenFiles: 20000
maxPods: 300
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
containerRuntimeEndpoint: unix://$DIR/containerd.sock
podLogsDir: $DIR/log/pods
resolvConf: $DIR/resolv.conf
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
localStorageCapacityIsolation: false
evictionHard: {memory.available: 100Mi}
imageGCHighThresholdPercent: 100
nodeStatusUpdateFrequency: 5s
volumePluginDir: $DIR/volumes
`

const proxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clusterCIDR: $PODS
clientConnection: {kubeconfig: $PROXY}
hostnameOverride: $NODE
conntrack: {maxPerCore: 0, min: 0}
`
