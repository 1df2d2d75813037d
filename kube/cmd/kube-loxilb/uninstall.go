package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"loxilb/kube/internal/balancer"
	"loxilb/kube/internal/options"
)

const (
	uninstallTimeout = 90 * time.Second
	pollInterval     = 500 * time.Millisecond
)

// commands are the program's subcommands, by the first argument. The chart's hooks run them when it
// is uninstalled or tested.
func commands() map[string]func(context.Context, []string) error {
	return map[string]func(context.Context, []string) error{
		"uninstall": uninstall,
		"await":     awaitDaemonSet,
		"hold":      hold,
	}
}

// uninstall stops the controller, and removes its marks from Services and its services from
// balancers. It has the controller's flags, so it finds the same Services and balancers.
func uninstall(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("kube-loxilb uninstall", flag.ContinueOnError)
	deployment := fs.String("deployment", "", "scale this Deployment, the controller's, to 0 first")
	o := options.Register(fs)
	kubeconfig, parsed, err := parse(fs, o, args)
	if err != nil {
		return err
	}
	o.Uninstall, o.Metrics, o.Probes = true, "0", "0"
	parsed.Roles, parsed.BGP = balancer.Roles{}, balancer.BGP{}
	config, err := configOf(kubeconfig)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, uninstallTimeout, fmt.Errorf("not done within %v", uninstallTimeout))
	defer cancel()
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if *deployment != "" {
		// The last replica then releases the Lease, for which serve waits.
		patch := []byte(`{"spec":{"replicas":0}}`)
		_, err = clients.AppsV1().Deployments(o.Namespace).Patch(ctx, *deployment, types.MergePatchType, patch, v1.PatchOptions{}, "scale")
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("stop the controller: %w", err)
		}
	}
	if err := serve(ctx, config, o, parsed); err != nil || !o.LeaderElect {
		return err
	}
	err = clients.CoordinationV1().Leases(o.Namespace).Delete(ctx, leaseName(o.Zone), v1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete the Lease: %w", err)
	}
	return nil
}

// awaitDaemonSet waits until all pods of a DaemonSet are ready, or until a timeout: nodes may be
// down.
func awaitDaemonSet(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("kube-loxilb await", flag.ContinueOnError)
	name := fs.String("daemonset", "", "name of the DaemonSet")
	namespace := fs.String("namespace", "kube-system", "namespace of the DaemonSet")
	timeout := fs.Duration("timeout", time.Minute, "how long to wait")
	required := fs.Bool("required", false, "fail if pods are not ready after --timeout")
	kubeconfig := fs.String("kubeconfig", "", "file to reach the cluster from outside; empty: the pod's service account")
	if err := fs.Parse(args); err != nil {
		return flag.ErrHelp // fs has printed the error
	}
	config, err := configOf(*kubeconfig)
	if err != nil {
		return err
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	for {
		d, err := clients.AppsV1().DaemonSets(*namespace).Get(ctx, *name, v1.GetOptions{})
		if err == nil && d.Status.ObservedGeneration >= d.Generation && d.Status.NumberReady >= d.Status.DesiredNumberScheduled {
			return nil
		}
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			if d == nil || d.Generation == 0 {
				return errors.Join(err, ctx.Err())
			}
			state := fmt.Sprintf("%d of %d pods are ready after %v", d.Status.NumberReady, d.Status.DesiredNumberScheduled, *timeout)
			if *required {
				return errors.New(state)
			}
			fmt.Println(state + ": other nodes keep what loxilb has put there until they start again")
			return nil
		}
	}
}

// hold waits for a signal, so a pod is ready once its init containers are done.
func hold(ctx context.Context, _ []string) error {
	<-ctx.Done()
	return nil
}

// uninstaller ends the manager when no marks of this controller remain.
type uninstaller struct {
	remaining func(context.Context) (string, error) // as Services.Remaining
	end       context.CancelCauseFunc
}

// errUninstalled is the cause of the manager's end when no marks remain.
var errUninstalled = errors.New("nothing remains")

// Start waits until no marks remain. It is a Runnable that only the leader runs.
func (u *uninstaller) Start(ctx context.Context) error {
	for {
		remaining, err := u.remaining(ctx)
		if remaining == "" && err == nil {
			u.end(errUninstalled)
			return nil
		}
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			if err != nil {
				return fmt.Errorf("find what remains: %w", err)
			}
			return fmt.Errorf("not removed: %s", remaining)
		}
	}
}
