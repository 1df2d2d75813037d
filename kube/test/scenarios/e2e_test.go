package scenarios

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"loxilb/kube/test/rig"
	"loxilb/test/netnstest"
)

const (
	specs        = `\[sig-network\] (LoadBalancers|EndpointSlice|Services)`
	skippedSpecs = `\[Disruptive\]` // they restart kube-proxy and the apiserver as pods
	specsAtATime = 8                // they mostly wait
	specsFile    = "testdata/specs.txt"
)

// spec is a spec of Kubernetes and its result, as Ginkgo reports it.
type spec struct {
	ContainerHierarchyTexts []string
	LeafNodeText            string
	LeafNodeType            string
	LeafNodeLocation        struct {
		FileName   string
		LineNumber int
	}
	State   string
	RunTime time.Duration
	Failure struct{ Message string }

	note string // special options of the run
}

// TestKubernetesE2E runs Kubernetes' own specs of Services and EndpointSlices with kube-proxy and
// kube-loxilb, from a machine outside of the cluster, and compares the results with the tables of
// testdata/specs.txt, which docs/kubernetes-controller.md sums up. UPDATE=1 updates the tables.
// SPECS is a pattern that selects specs.
func TestKubernetesE2E(t *testing.T) {
	program := artifact(t, "LOXILB_KUBE_E2E")
	c := clusterWith(t, rig.ClusterOptions{CNI: "bridge", IPv4Only: true},
		rig.Image{Name: "localhost/coredns:1", Program: artifact(t, "LOXILB_KUBE_DNS")},
		rig.Image{Name: pauseName, Program: artifact(t, "LOXILB_KUBE_WEB"), Args: []string{"pause"}},
		agnhost(t))
	runDNS(t, c)
	install(t, c, "controller.mode=auto")
	s := suite{t: t, c: c, program: program, dir: cmp.Or(os.Getenv("E2E_LOGS"), t.TempDir())}
	if err := os.Symlink(c.KubectlProgram(), filepath.Join(s.dir, "kubectl")); err != nil {
		t.Fatal(err)
	}
	results := s.runAll(s.list())
	var again []spec
	results = slices.DeleteFunc(results, func(one spec) bool {
		needsVIPMode := strings.Contains(one.Failure.Message, "'Proxy' IPMode")
		if needsVIPMode {
			again = append(again, one)
		}
		return needsVIPMode
	})
	if len(again) > 0 {
		helm(t, c, "upgrade", "loxilb", "../../../deploy/helm/loxilb", "--namespace=kube-system", "--reset-then-reuse-values", "--set=controller.extraArgs={--ip-mode=VIP}")
		kubectl(t, c, "--namespace=kube-system", "rollout", "status", "deployment/loxilb-controller", "--timeout=120s")
		for _, one := range s.runAll(again) {
			one.note = "with `--ip-mode=VIP`"
			results = append(results, one)
		}
	}
	compareSpecs(t, results)
}

// suite is Kubernetes' test program.
type suite struct {
	t            *testing.T
	c            *rig.Cluster
	program, dir string
}

// runAll runs specs, several at a time.
func (s *suite) runAll(list []spec) (results []spec) {
	var mu sync.Mutex
	var all sync.WaitGroup
	queue := make(chan spec)
	for range specsAtATime {
		all.Go(func() {
			for one := range queue {
				result := s.result(one)
				mu.Lock()
				results = append(results, result)
				mu.Unlock()
			}
		})
	}
	for _, one := range list {
		queue <- one
	}
	close(queue)
	all.Wait()
	return results
}

// list returns the specs. Those of load balancers come first, since they take longest.
func (s *suite) list() []spec {
	list := s.run("all", "--ginkgo.dry-run", "--ginkgo.focus="+cmp.Or(os.Getenv("SPECS"), specs))
	list = slices.DeleteFunc(list, func(one spec) bool { return one.LeafNodeType != "It" || one.State != "passed" })
	slices.SortStableFunc(list, func(a, b spec) int {
		return -cmp.Compare(a.LeafNodeLocation.FileName, b.LeafNodeLocation.FileName)
	})
	slices.SortStableFunc(list, func(a, b spec) int {
		return -cmp.Compare(strings.Count(a.fullName(), "LoadBalancer"), strings.Count(b.fullName(), "LoadBalancer"))
	})
	return list
}

// result runs one spec.
func (s *suite) result(one spec) spec {
	place := fmt.Sprintf("%s:%d", filepath.Base(one.LeafNodeLocation.FileName), one.LeafNodeLocation.LineNumber)
	for _, done := range s.run(place, "--ginkgo.focus-file="+regexp.QuoteMeta(place)) {
		if done.LeafNodeType == "It" && done.fullName() == one.fullName() {
			one.State, one.RunTime, one.Failure = done.State, done.RunTime, done.Failure
		} else if done.State == "failed" {
			one.State, one.Failure = done.State, done.Failure
		}
	}
	s.t.Logf("%-8s %6.1f s  %s  %s  %s", one.State, one.RunTime.Seconds(), place, one.name(), strings.ReplaceAll(one.Failure.Message, "\n", " "))
	return one
}

// run runs specs from a machine outside of the cluster.
func (s *suite) run(name string, args ...string) []spec {
	config, err := s.c.Kubeconfig("admin", rig.Admins)
	if err != nil {
		s.t.Error(err)
		return nil
	}
	report := filepath.Join(s.dir, name+".json")
	log, err := os.Create(filepath.Join(s.dir, name+".log"))
	if err != nil {
		s.t.Error(err)
		return nil
	}
	process, err := s.c.Outside.Start(netnstest.Command{Dir: s.dir, Output: log, Args: append([]string{
		s.program, "--kubeconfig=" + config, "--kubectl-path=" + filepath.Join(s.dir, "kubectl"), "--provider=local",
		"--ginkgo.skip=" + skippedSpecs, "--ginkgo.json-report=" + report, "--ginkgo.no-color", "--ginkgo.timeout=1h",
	}, args...)})
	if err != nil {
		s.t.Error(err)
		return nil
	}
	_ = process.Wait() // the report has the specs that failed
	data, err := os.ReadFile(report)
	var reports []struct{ SpecReports []spec }
	if err == nil {
		err = json.Unmarshal(data, &reports)
	}
	if err != nil || len(reports) != 1 {
		s.t.Errorf("there is no report of %s (%v): %s", name, err, process.Output())
		return nil
	}
	return reports[0].SpecReports
}

// fullName returns the spec's name with labels.
func (s spec) fullName() string {
	return strings.Join(append(slices.Clone(s.ContainerHierarchyTexts), s.LeafNodeText), " ")
}

// name returns the spec's name without labels.
func (s spec) name() string {
	return strings.TrimSpace(regexp.MustCompile(`\s*\[[^]]*\]`).ReplaceAllString(s.fullName(), ""))
}
