// Command kube-loxilb is a Kubernetes controller that serves Services of type LoadBalancer by
// loxilb balancers.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"loxilb/kube/api/v1alpha1"
	"loxilb/kube/internal/address"
	"loxilb/kube/internal/annotation"
	"loxilb/kube/internal/balancer"
	"loxilb/kube/internal/controller"
	"loxilb/kube/internal/options"
)

// version is set by the linker.
var version = "0.0.0"

// logHandler writes the log. parse replaces it by one with the level of --log-level.
var logHandler slog.Handler = slog.NewTextHandler(os.Stderr, nil)

func main() {
	if err := run(os.Args[1:]); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "kube-loxilb:", err)
		}
		os.Exit(1)
	}
}

// run runs a subcommand, or the controller.
func run(args []string) error {
	if len(args) > 0 {
		if command := commands()[args[0]]; command != nil {
			return command(ctrl.SetupSignalHandler(), args[1:])
		}
	}
	fs := flag.NewFlagSet("kube-loxilb", flag.ContinueOnError)
	o := options.Register(fs)
	showVersion := fs.Bool("version", false, "print the version")
	kubeconfig, parsed, err := parse(fs, o, args)
	if err != nil {
		return err
	}
	if *showVersion {
		fmt.Println(version)
		return nil
	}
	config, err := configOf(kubeconfig)
	if err != nil {
		return err
	}
	ctx := ctrl.SetupSignalHandler()
	if err = serve(ctx, config, o, parsed); ctx.Err() != nil || !isUnavailable(err) && !errors.Is(err, errLate) {
		return err
	}
	return restart(err)
}

// parse parses the flags, and configures the log and the garbage collector.
func parse(fs *flag.FlagSet, o *options.Options, args []string) (kubeconfig string, parsed *options.Parsed, err error) {
	fs.StringVar(&kubeconfig, "kubeconfig", "", "file to reach the cluster from outside; empty: the pod's service account")
	if err := fs.Parse(args); err != nil {
		return "", nil, flag.ErrHelp // fs has printed the error
	}
	if fs.NArg() > 0 {
		return "", nil, fmt.Errorf("unknown argument %q", fs.Arg(0))
	}
	if err := o.Load(fs); err != nil {
		return "", nil, err
	}
	p, err := o.Parse()
	if err != nil {
		return "", nil, err
	}
	level := slog.LevelInfo
	if o.LogLevel == "debug" {
		level = slog.LevelDebug
	}
	logHandler = slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})
	log := logr.FromSlogHandler(logHandler)
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	for _, text := range o.Ignored {
		slog.New(logHandler).Warn("flag has no effect", "reason", text)
	}
	debug.SetGCPercent(50) // most objects live long: save memory rather than CPU time
	return kubeconfig, &p, nil
}

// configOf returns the configuration of clients of the apiserver: that of the file, or else of the
// pod.
func configOf(kubeconfig string) (*rest.Config, error) {
	read := ctrl.GetConfig
	if kubeconfig != "" {
		read = func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", kubeconfig) }
	}
	config, err := read()
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig %q: %w", kubeconfig, err)
	}
	config.QPS = -1 // no limit: the apiserver limits its clients
	return config, nil
}

// serve runs the controllers until the context ends or leadership is lost; to uninstall, until no
// marks remain.
func serve(ctx context.Context, config *rest.Config, o *options.Options, p *options.Parsed) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}
	if err := awaitAPI(ctx, config, o.Probes); err != nil {
		return err
	}
	lease, err := newLease(config, o)
	if err != nil {
		return err
	}
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme,
		Cache: cache.Options{DefaultTransform: cache.TransformStripManagedFields(), ByObject: map[client.Object]cache.ByObject{
			&corev1.Node{}:               {Transform: stripNode},
			&discoveryv1.EndpointSlice{}: {Transform: stripSlice},
		}},
		Metrics:                       server.Options{BindAddress: o.Metrics},
		HealthProbeBindAddress:        o.Probes,
		LeaderElection:                o.LeaderElect,
		LeaderElectionReleaseOnCancel: true,
		RenewDeadline:                 new(renewDeadline),

		LeaderElectionResourceLockInterface: lease,

		GracefulShutdownTimeout: new(5 * time.Second),
	})
	if err != nil {
		return err
	}
	if err := errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("ping", healthz.Ping)); err != nil {
		return err
	}
	owner, err := ownerOf(ctx, mgr.GetAPIReader(), o.Owner)
	if err != nil {
		return err
	}
	services, err := assemble(ctx, mgr, o, p, owner)
	if err != nil {
		return err
	}
	if !o.Uninstall {
		return mgr.Start(ctx)
	}
	ctx, end := context.WithCancelCause(ctx)
	if err := mgr.Add(&uninstaller{remaining: services.Remaining, end: end}); err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return err
	}
	if cause := context.Cause(ctx); !errors.Is(cause, errUninstalled) {
		return cause
	}
	return nil
}

// ownerOf returns the owner of this cluster's services on balancers: the given one, or else a name
// derived from the unique ID of the namespace kube-system.
func ownerOf(ctx context.Context, reader client.Reader, given string) (string, error) {
	if given != "" {
		return given, nil
	}
	var namespace corev1.Namespace
	err := reader.Get(ctx, types.NamespacedName{Name: "kube-system"}, &namespace)
	for began := time.Now(); apierrors.IsForbidden(err) && time.Since(began) < rightsTimeout && ctx.Err() == nil; {
		time.Sleep(apiInterval)
		err = reader.Get(ctx, types.NamespacedName{Name: "kube-system"}, &namespace)
	}
	if err != nil {
		return "", fmt.Errorf("the cluster has no ID: set --owner: %w", err)
	}
	return fmt.Sprintf("kube-%.8s", namespace.UID), nil
}

// assemble creates the controllers and their parts.
func assemble(ctx context.Context, mgr ctrl.Manager, o *options.Options, p *options.Parsed, owner string) (*controller.Services, error) {
	recorder := mgr.GetEventRecorder("kube-loxilb")
	hasPools, err := isServed(mgr.GetRESTMapper(), poolKind())
	hasURLs, err2 := isServed(mgr.GetRESTMapper(), controller.LoxiURLKind())
	if err := errors.Join(err, err2); err != nil {
		return nil, err
	}
	log := mgr.GetLogger()
	log.Info("starting", "version", version, "owner", owner, "zone", o.Zone, "AddressPools", hasPools, "LoxiURLs", hasURLs)

	addresses := address.New()
	addresses.PoolsOnly = o.PoolsOnly
	services := &controller.Services{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Events: recorder, Addresses: addresses,
		Annotations: annotation.NewReader(), Defaults: p.Defaults,
		Class: o.Class, DefaultClass: o.DefaultClass, Zone: o.Zone, Owner: owner, IPMode: p.IPMode,
		DenyHostMode: o.DenyHostMode, Uninstall: o.Uninstall,
	}
	services.Fleet = balancer.NewFleet(balancer.Options{
		Owner: owner, Zone: o.Zone, TakeOver: o.TakeOver, Roles: p.Roles, BGP: p.BGP, Changed: services.Enqueue, Log: log,
		Stuck: func(service types.NamespacedName, why string) { services.ReportStuck(ctx, service, why) },
	})
	targets := &controller.Targets{
		Client: mgr.GetClient(), Fleet: services.Fleet, Access: o.Access, URLs: p.URLs, Discovery: p.Discovery,
		Scheme: o.Scheme, Port: o.Port, HasLoxiURLs: hasURLs, Zone: o.Zone, Log: log,
	}
	pools := &controller.Pools{
		Client: mgr.GetClient(), Events: recorder, Addresses: addresses, Static: p.Pools, Sharing: p.Sharing,
		HasAddressPools: hasPools, HasLoxiURLs: hasURLs, LoxiURLs: targets.LoxiURLs, Changed: services.PoolsReplaced,
	}
	services.LoadPools = pools.Load
	if missing := missingResources(hasPools, hasURLs); len(missing) > 0 && !o.Uninstall {
		if err := mgr.Add(&lateResources{mgr.GetRESTMapper(), missing, lateInterval}); err != nil {
			return nil, err
		}
	}
	return services, controller.SetUp(ctx, mgr, services, pools, targets)
}

// stripNode removes unused parts of a Node to save memory, such as the list of images.
func stripNode(o any) (any, error) {
	if n, ok := o.(*corev1.Node); ok {
		n.ManagedFields, n.Annotations = nil, nil
		n.Spec = corev1.NodeSpec{Taints: n.Spec.Taints, PodCIDRs: n.Spec.PodCIDRs}
		n.Status = corev1.NodeStatus{Addresses: n.Status.Addresses, Conditions: n.Status.Conditions}
	}
	return o, nil
}

// stripSlice removes unused parts of an EndpointSlice to save memory.
func stripSlice(o any) (any, error) {
	if s, ok := o.(*discoveryv1.EndpointSlice); ok {
		s.ManagedFields, s.Annotations, s.OwnerReferences = nil, nil, nil
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			e.Hints, e.DeprecatedTopology, e.Hostname = nil, nil, nil
			if e.TargetRef != nil {
				e.TargetRef = &corev1.ObjectReference{Kind: e.TargetRef.Kind, Name: e.TargetRef.Name}
			}
		}
	}
	return o, nil
}
