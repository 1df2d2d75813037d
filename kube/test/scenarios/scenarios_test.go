// Package scenarios tests loxilb in a cluster as users run it: from the chart, with the container
// image.
package scenarios

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"loxilb/kube/test/rig"
	"loxilb/test/await"
	"loxilb/test/netnstest/labtest"
)

// patience is the timeout of operations in a cluster, for busy machines.
const patience = 2 * time.Minute

// artifact returns an environment variable of kube/test/run, such as the path of a program.
func artifact(t testing.TB, variable string) string {
	t.Helper()
	value := os.Getenv(variable)
	if value == "" {
		t.Skipf("%s is not set: run it by make test-kube", variable)
	}
	return value
}

// cluster starts a cluster whose nodes have the images of loxilb, web servers and more. It ends
// with the test. A failed test logs its state.
func cluster(t *testing.T, cni string, more ...rig.Image) *rig.Cluster {
	t.Helper()
	return clusterWith(t, rig.ClusterOptions{CNI: cni}, more...)
}

// clusterWith is cluster with more options.
func clusterWith(t *testing.T, o rig.ClusterOptions, more ...rig.Image) *rig.Cluster {
	t.Helper()
	web, loxilb, controller := artifact(t, "LOXILB_KUBE_WEB"), artifact(t, "LOXILB_KUBE_IMAGE"), artifact(t, "LOXILB_KUBE_CONTROLLER")
	images := filepath.Join(t.TempDir(), "web.tar")
	err := rig.WriteImages(images, append(more,
		rig.Image{Name: "localhost/web:1", Program: web},
		rig.Image{Name: "localhost/pause:1", Program: web, Args: []string{"pause"}})...)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	o.Images = []string{images, loxilb, controller}
	c, err := rig.StartCluster(ctx, labtest.New(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%6.1f s  the cluster is ready", time.Since(began).Seconds())
	t.Cleanup(func() {
		if t.Failed() {
			report(t, c)
		}
	})
	return c
}

// report logs the state of a cluster whose test has failed.
func report(t *testing.T, c *rig.Cluster) {
	for _, args := range [][]string{
		{"get", "pods,services,nodes", "--all-namespaces", "--output=wide"},
		{"get", "events", "--all-namespaces", "--field-selector=type=Warning"},
		{"logs", "--namespace=kube-system", "--selector=app.kubernetes.io/name=loxilb", "--tail=50"},
		{"logs", "--namespace=kube-system", "--selector=app.kubernetes.io/name=kube-loxilb", "--tail=50"},
		{"exec", "--namespace=kube-system", "daemonset/loxilb", "--", "loxicmd", "get", "lb", "-o", "wide"},
	} {
		out, err := c.Kubectl(args...)
		t.Log(strings.Join(args, " "), err, "\n"+out)
	}
}

// kubectl runs kubectl; a failure ends the test.
func kubectl(t testing.TB, c *rig.Cluster, args ...string) string {
	t.Helper()
	out, err := c.Kubectl(args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// apply creates or updates objects.
func apply(t testing.TB, c *rig.Cluster, manifest string) {
	t.Helper()
	if err := c.Apply(manifest); err != nil {
		t.Fatal(err)
	}
}

// helm runs helm; a failure ends the test.
func helm(t testing.TB, c *rig.Cluster, args ...string) string {
	t.Helper()
	out, err := c.Run(append([]string{artifact(t, "LOXILB_HELM")}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// shell runs shell commands with kubectl and helm; a failure ends the test.
func shell(t testing.TB, c *rig.Cluster, commands string) string {
	t.Helper()
	out, err := c.Run("sh", "-euc", fmt.Sprintf("kubectl() { %s \"$@\"; }\nhelm() { %s \"$@\"; }\n%s", c.KubectlProgram(), artifact(t, "LOXILB_HELM"), commands))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// installLoxilb installs the chart on n1 and waits until the daemon is ready.
func installLoxilb(t testing.TB, c *rig.Cluster, values ...string) {
	t.Helper()
	repository, tag, _ := strings.Cut(artifact(t, "LOXILB_KUBE_IMAGE_NAME"), ":")
	args := []string{"install", "loxilb", "../../../deploy/helm/loxilb", "--namespace=kube-system",
		"--set=image.repository=" + repository, "--set-string=image.tag=" + tag,
		"--set=api.access=open", "--set=nodeSelector.kubernetes\\.io/hostname=n1", "--set=updates.minReadySeconds=0"}
	for _, v := range values {
		args = append(args, "--set="+v)
	}
	helm(t, c, args...)
	kubectl(t, c, "--namespace=kube-system", "rollout", "status", "daemonset/loxilb", "--timeout=2m") // helm does not wait
}

// runWeb starts web servers and waits until they answer. Each node has two pods: one behind the
// Service web with a node port, and one that is returned, by node. They differ since kube-proxy
// masquerades without regard to the balancer's source ports, and could choose the same port to the
// same pod (docs/kubernetes.md).
func runWeb(t testing.TB, c *rig.Cluster) map[string]rig.Pod {
	t.Helper()
	apply(t, c, webService)
	for _, name := range []string{"web-n1", "web-n2", "direct-n1", "direct-n2"} {
		app, node, _ := strings.Cut(name, "-")
		apply(t, c, fmt.Sprintf(webDeployment, app, node))
	}
	kubectl(t, c, "wait", "--for=condition=Available", "deployment", "--all", "--timeout=120s")
	pods, err := c.Pods("app=direct")
	if err != nil {
		t.Fatal(err)
	}
	byNode := map[string]rig.Pod{}
	for _, pod := range pods {
		byNode[pod.Node] = pod
		if err := pod.Find(); err != nil {
			t.Fatalf("pod %s: %v", pod.Name, err)
		}
	}
	if len(byNode) != 2 {
		t.Fatal("there is not one pod on each node")
	}
	awaitNodePorts(t, c)
	return byNode
}

// awaitNodePorts waits until kube-proxy serves the node ports, which may be later than pods are
// available.
func awaitNodePorts(t testing.TB, c *rig.Cluster) {
	t.Helper()
	lan := client{"LAN host", c.LAN.DialContext}
	for _, n := range c.Nodes {
		for _, a := range n.Addresses() {
			await.NoError(t, patience, func() error {
				_, err := get(t.Context(), lan, net.JoinHostPort(a, "30080"))
				return err
			})
		}
	}
}

const webDeployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s-%[2]s}
spec:
  selector: {matchLabels: {app: %[1]s, node: %[2]s}}
  template:
    metadata: {labels: {app: %[1]s, node: %[2]s}}
    spec:
      nodeSelector: {kubernetes.io/hostname: %[2]s}
      containers:
        - name: web
          image: localhost/web:1
          readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
`

const webService = `
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: NodePort
  ipFamilyPolicy: RequireDualStack
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080, nodePort: 30080}]
`
