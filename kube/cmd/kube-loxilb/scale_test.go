package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"loxilb/test/await"
)

// TestThousandServices writes 1,000 Services with 5 endpoints each, and measures how long the
// controller takes to serve them all, and its memory: when they are new, and after a restart. The
// goals are 10 s and 50 MB; the limits, two minutes and 150 MB, leave room for busy machines.
func TestThousandServices(t *testing.T) {
	const services = 1000
	c := newCluster(t)
	var writers sync.WaitGroup
	next := make(chan int)
	for range 16 {
		writers.Go(func() {
			for i := range next {
				s := service(fmt.Sprintf("s%04d", i), 80)
				slice := endpoints(s, "31.31.31.1", "31.31.31.2", "32.32.32.1", "32.32.32.2", "17.17.17.1")
				if err := c.Create(t.Context(), s); err != nil {
					t.Error(err)
				}
				if err := c.Create(t.Context(), slice); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range services {
		next <- i
	}
	close(next)
	writers.Wait()
	for _, what := range []string{"new Services", "after a restart"} {
		began := time.Now()
		c.run("--cidrPools=20.20.0.0/16", "--setUniqueIP", "--leader-elect=false")
		await.NoError(t, 2*patience, func() error { return c.allServed(services) })
		took, memory := time.Since(began), c.memory(t)
		t.Logf("%s: %d served after %v, with %d MB", what, services, took.Round(time.Millisecond), memory>>20)
		if memory > 150<<20 {
			t.Errorf("%s: %d MB are too much", what, memory>>20)
		}
		c.controller.Stop()
	}
}

// allServed reports an error until metrics say that the balancer has all services, and each status
// has an address.
func (c *cluster) allServed(n int) error {
	response, err := c.LB.HTTPClient(patience).Get("http://127.0.0.1:8080/metrics")
	if err != nil {
		return err
	}
	data, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return err
	}
	page := string(data)
	if want := fmt.Sprintf("kube_loxilb_balancer_services{balancer=\"http://127.0.0.1:11111\"} %d\n", n); !strings.Contains(page, want) {
		return fmt.Errorf("not all services are on the balancer")
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
