package scenarios

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"loxilb/kube/test/rig"
	"loxilb/test/await"
)

// TestSession runs the commands of docs/kubernetes.md from installation to removal. In between, a
// Service is created and, under load, scaled, rolled out again and drained from a node. The test
// logs how long each step takes.
func TestSession(t *testing.T) {
	t.Parallel()
	c := cluster(t, "bridge", rig.Image{Name: "localhost/coredns:1", Program: artifact(t, "LOXILB_KUBE_DNS")})
	runDNS(t, c)
	step := stopwatch(t)
	installAsDocumented(t, c, step)

	apply(t, c, sessionDeployment)
	kubectl(t, c, "rollout", "status", "deployment/shop", "--timeout=120s")
	step("deployment with two pods is ready")

	kubectl(t, c, "expose", "deployment", "shop", "--type=LoadBalancer", "--port=80", "--target-port=8080",
		`--overrides={"spec":{"loadBalancerClass":"loxilb.io/loxilb"}}`)
	vip := ingress(t, c)
	step("kubectl expose: the Service has address " + vip)

	address := net.JoinHostPort(vip, "80")
	clients := []client{
		{"outside", c.Outside.DialContext},
		{"the LAN", c.LAN.DialContext},
		{"n1", c.Nodes[0].DialContext},
		{"n2", c.Nodes[1].DialContext},
	}
	for _, cl := range clients {
		await.NoError(t, patience, func() error { return allAnswered(t.Context(), cl, address) })
		step("20 of 20 requests are answered from " + cl.name)
	}
	if out := kubectl(t, c, "exec", "deployment/shop", "--", "web", "get", "20", address); strings.Count(out, "shop-") != requests {
		t.Errorf("a pod gets: %s", out)
	}
	step("20 of 20 requests are answered from a pod")
	if out := kubectl(t, c, "exec", "deployment/shop", "--", "web", "get", "1", "shop.default.svc.cluster.local:80"); !strings.HasPrefix(out, "shop-") {
		t.Errorf("by the Service's name, a pod gets: %s", out)
	}
	step("a pod is answered by the Service's name")

	load := startLoad(t.Context(), c, clients[0], address)
	kubectl(t, c, "scale", "deployment/shop", "--replicas=4")
	await.True(t, patience, "all four pods answer", func() bool { return load.names() >= 4 })
	step("kubectl scale: four pods answer")

	kubectl(t, c, "rollout", "restart", "deployment/shop")
	kubectl(t, c, "rollout", "status", "deployment/shop", "--timeout=120s")
	step("kubectl rollout restart: all pods are new")

	kubectl(t, c, "drain", "n2", "--ignore-daemonsets", "--timeout=120s")
	kubectl(t, c, "rollout", "status", "deployment/shop", "--timeout=120s")
	step("kubectl drain n2: all pods are on n1")
	load.check(t, "pods came and went under load from outside", 0)

	kubectl(t, c, "uncordon", "n2")
	kubectl(t, c, "delete", "service", "shop")
	await.True(t, patience, "the VIP is gone", func() bool { return !answers(t.Context(), clients[1], address) })
	step("kubectl delete service: the address no longer answers")

	shell(t, c, removal(t))
	for _, node := range c.Nodes {
		checkClean(t, node)
	}
	step("helm uninstall: nothing is left")
}

// installAsDocumented runs the commands of docs/kubernetes.md that install balancers and
// controller, with the images and addresses of this cluster.
func installAsDocumented(t testing.TB, c *rig.Cluster, step func(string)) {
	t.Helper()
	text, err := os.ReadFile("../../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Install\n")
	section, _, _ = strings.Cut(section, "\n## ")
	repository, tag, _ := strings.Cut(artifact(t, "LOXILB_KUBE_IMAGE_NAME"), ":")
	here := strings.NewReplacer("deploy/helm", "../../../deploy/helm", "20.20.20.0/24", "10.77.0.128/28",
		"image.repository=registry.example.org/loxilb --set-string image.tag=1", "image.repository="+repository+" --set-string image.tag="+tag,
		"registry.example.org/kube-loxilb", "localhost/kube-loxilb")
	var ran []string
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(section, -1) {
		commands := block[1]
		words := strings.Fields(commands)
		switch {
		case words[0] != "helm" && !strings.Contains(commands, "rollout status"):
			continue // images, the installation without Helm, and the Service
		case words[0] == "helm":
			shell(t, c, here.Replace(commands))
		default:
			if out := shell(t, c, commands); strings.Count(out, "\n|") != 2 {
				t.Errorf("the daemon lists failures: %s", out)
			}
		}
		ran = append(ran, strings.Join(words[:2], " "))
		step(fmt.Sprintf("docs/kubernetes.md: %.60s...", commands))
	}
	if !slices.Equal(ran, []string{"helm install", "kubectl --namespace", "helm upgrade"}) {
		t.Fatalf("docs/kubernetes.md installs by %q", ran)
	}
}

// install installs the chart with balancers on both nodes, and the controller.
func install(t testing.TB, c *rig.Cluster, values ...string) {
	t.Helper()
	repository, tag, _ := strings.Cut(artifact(t, "LOXILB_KUBE_IMAGE_NAME"), ":")
	args := []string{"install", "loxilb", "../../../deploy/helm/loxilb", "--namespace=kube-system",
		"--set=image.repository=" + repository, "--set-string=image.tag=" + tag, "--set=api.access=open", "--set=updates.minReadySeconds=0",
		"--set=controller.enabled=true", "--set-string=controller.image.tag=1", "--set=controller.defaultClass=true",
		"--set=controller.addresses={10.77.0.128/28,fd77::2:0/112}"}
	for _, v := range values {
		args = append(args, "--set="+v)
	}
	helm(t, c, args...)
	kubectl(t, c, "--namespace=kube-system", "rollout", "status", "daemonset/loxilb", "--timeout=120s")
	kubectl(t, c, "--namespace=kube-system", "rollout", "status", "deployment/loxilb-controller", "--timeout=120s")
}

// ingress waits for the address of the Service shop.
func ingress(t testing.TB, c *rig.Cluster) string {
	t.Helper()
	return ingressOf(t, c, "shop")
}

// ingressOf waits for the first address of a Service.
func ingressOf(t testing.TB, c *rig.Cluster, name string) (address string) {
	t.Helper()
	await.NoError(t, patience, func() error {
		var s struct {
			Status struct {
				LoadBalancer struct{ Ingress []struct{ IP string } }
			}
		}
		if err := c.Get(t.Context(), "/api/v1/namespaces/default/services/"+name, &s); err != nil {
			return err
		}
		if len(s.Status.LoadBalancer.Ingress) == 0 || s.Status.LoadBalancer.Ingress[0].IP == "" {
			return fmt.Errorf("Service %s has no address", name)
		}
		address = s.Status.LoadBalancer.Ingress[0].IP
		return nil
	})
	return address
}

// stopwatch returns a function that logs how long a step took.
func stopwatch(t testing.TB) func(step string) {
	last := time.Now()
	return func(step string) {
		t.Logf("%6.1f s  %s", time.Since(last).Seconds(), step)
		last = time.Now()
	}
}

// allAnswered returns an error unless all requests are answered.
func allAnswered(ctx context.Context, c client, address string) error {
	if n, err := get(ctx, c, address); n != requests {
		return fmt.Errorf("%s: %d of %d requests are answered: %w", c.name, n, requests, err)
	}
	return nil
}

// answers reports whether one request is answered.
func answers(ctx context.Context, c client, address string) bool {
	h := &http.Client{Timeout: time.Second, Transport: &http.Transport{DialContext: c.dial, DisableKeepAlives: true}}
	_, err := whoAnswers(ctx, h, address)
	return err == nil
}

// sessionDeployment requests as much CPU as loxilb. Otherwise all pods of a node together have 2
// CPU shares and the daemon 102, so their answers take seconds while a daemon starts on a busy
// machine.
const sessionDeployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      containers:
        - name: web
          image: localhost/web:1
          resources: {requests: {cpu: 100m}}
          readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
          lifecycle: {preStop: {sleep: {seconds: 3}}} # until all balancers have removed the pod
`
