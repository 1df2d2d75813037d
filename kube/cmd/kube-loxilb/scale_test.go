package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"loxilb/test/await"
	"loxilb/test/netnstest"
)

// TestThousandServices creates 1,000 Services with 5 endpoints each, and starts the controller. It
// measures the controller's memory, and the time until all Services are on the balancer and have
// addresses: for new Services, after a restart, and with an empty balancer. The goals are 10 s and
// 50 MB; the limits, two minutes and 150 MB, leave room for busy machines.
func TestThousandServices(t *testing.T) {
	const services = 1000
	c := newCluster(t)
	c.createMany(t, services, func(i int) []client.Object {
		s := service(fmt.Sprintf("s%04d", i), 80)
		return []client.Object{s, endpoints(s, "31.31.31.1", "31.31.31.2", "32.32.32.1", "32.32.32.2", "17.17.17.1")}
	})
	for _, what := range []string{"new Services", "after a restart", "empty balancer"} {
		if what == "empty balancer" {
			c.Loxicmd("delete lb --all --yes")
		}
		began, balancer, others := time.Now(), cpu(t, c.Process), cpu(t, c.api.Processes()...)
		c.run("--cidrPools=20.20.0.0/16", "--setUniqueIP", "--leader-elect=false")
		await.NoError(t, 2*patience, func() error { return c.balanced(services) })
		balanced := time.Since(began)
		await.NoError(t, 2*patience, func() error { return c.allServed(services) })
		took, memory := time.Since(began), c.memory(t)
		t.Logf("%s: %d on the balancer after %v, with addresses after %v; %d MB; CPU: controller %v, balancer %v, apiserver and etcd %v",
			what, services, balanced.Round(time.Millisecond), took.Round(time.Millisecond), memory>>20,
			cpu(t, c.controller), cpu(t, c.Process)-balancer, cpu(t, c.api.Processes()...)-others)
		if memory > 150<<20 {
			t.Errorf("%s: %d MB are too much", what, memory>>20)
		}
		c.controller.Stop()
	}
}

// balanced returns an error unless, by the metrics, n Services were reconciled and are on the
// balancer.
func (c *cluster) balanced(n int) error {
	response, err := c.LB.HTTPClient(patience).Get("http://127.0.0.1:8080/metrics")
	if err != nil {
		return err
	}
	data, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return err
	}
	page, reconciled := string(data), 0.0
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, `controller_runtime_reconcile_total{controller="services"`) {
			continue
		}
		fields := strings.Fields(line)
		count, err := strconv.ParseFloat(fields[len(fields)-1], 64)
		if err != nil {
			return err
		}
		reconciled += count
	}
	if reconciled < float64(n) {
		return fmt.Errorf("%v of %d Services are reconciled", reconciled, n)
	}
	if want := fmt.Sprintf("kube_loxilb_balancer_services{balancer=\"http://127.0.0.1:11111\"} %d\n", n); !strings.Contains(page, want) {
		return fmt.Errorf("not all services are on the balancer")
	}
	return nil
}

// allServed is like balanced, and each status must have an address.
func (c *cluster) allServed(n int) error {
	if err := c.balanced(n); err != nil {
		return err
	}
	var list corev1.ServiceList
	if err := c.List(c.t.Context(), &list); err != nil {
		return err
	}
	with := 0
	for i := range list.Items {
		with += len(list.Items[i].Status.LoadBalancer.Ingress)
	}
	if with != n {
		return fmt.Errorf("%d of %d services have an address", with, n)
	}
	return nil
}

// cpu returns the CPU time of processes.
func cpu(t *testing.T, list ...*netnstest.Process) (sum time.Duration) {
	t.Helper()
	const tick = time.Second / 100 // in files of /proc, on all architectures
	for _, p := range list {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid()))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(text), ") ")       // after the name
		for _, field := range strings.Fields(rest)[11:13] { // user and system
			n, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			sum += time.Duration(n) * tick
		}
	}
	return sum
}

// memory returns the resident memory of the controller.
func (c *cluster) memory(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.controller.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "RssAnon:")
	kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kb << 10
}
