package rig

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/vishvananda/netns"
)

// Pod is a pod with running containers.
type Pod struct {
	Name, Node string
	Addresses  []string // IPv4 first
	process    func() (int, error)
}

// Pods returns the pods that match a selector such as app=web, in any order.
func (c *Cluster) Pods(selector string) ([]Pod, error) {
	var list struct {
		Items []struct {
			Metadata struct{ Name, UID string }
			Spec     struct{ NodeName string }
			Status   struct{ PodIPs []struct{ IP string } }
		}
	}
	if err := c.Get(context.Background(), "/api/v1/namespaces/default/pods?labelSelector="+url.QueryEscape(selector), &list); err != nil {
		return nil, err
	}
	pods := make([]Pod, 0, len(list.Items))
	for _, i := range list.Items {
		pod := Pod{Name: i.Metadata.Name, Node: i.Spec.NodeName}
		pod.process = sync.OnceValues(func() (int, error) { return processOf(i.Metadata.UID) }) // all of /proc is searched
		for _, address := range i.Status.PodIPs {
			pod.Addresses = append(pod.Addresses, address.IP)
		}
		pods = append(pods, pod)
	}
	return pods, nil
}

// Find finds the pod's network namespace. Without it, the first connection does so, which takes
// seconds on a busy machine.
func (p Pod) Find() error {
	_, err := p.process()
	return err
}

// DialContext opens a connection from the pod's network namespace.
func (p Pod) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	process, err := p.process()
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", p.Name, err)
	}
	target, err := netns.GetFromPid(process)
	if err != nil {
		return nil, fmt.Errorf("network of pod %s: %w", p.Name, err)
	}
	defer target.Close()
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result)
	go func() { // its locked thread, which stays in the pod's network, ends with it
		runtime.LockOSThread()
		if err := netns.Set(target); err != nil {
			done <- result{err: err}
			return
		}
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		done <- result{conn, err}
	}()
	r := <-done
	return r.conn, r.err
}

// processOf returns the id of a process of a pod in this process's PID namespace. It finds it by
// the control group, whose name contains the pod's UID.
func processOf(uid string) (int, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return 0, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(text), "pod"+uid+"/") {
			return strconv.Atoi(filepath.Base(filepath.Dir(file)))
		}
	}
	return 0, errors.New("it has no process")
}
