package controller

import (
	"cmp"
	"context"
	"net"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"loxilb/kube/internal/balancer"
)

// Types of a LoxiURL.
const (
	kindDefault  = "default"
	kindCIDRPool = "cidrpool"
)

// LoxiURLKind returns the kind of the existing controller's custom resource for balancers and
// pools.
func LoxiURLKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "loxiurl.loxilb.io", Version: "v1", Kind: "LoxiURL"}
}

// loxiURL has the used fields of a LoxiURL.
type loxiURL struct{ name, kind, text string }

// Targets sets the fleet's balancers: those of the command line and of LoxiURLs, or else the pods
// behind a Service.
type Targets struct {
	Client      client.Client
	Fleet       *balancer.Fleet
	Access      balancer.Access
	URLs        []string
	Discovery   types.NamespacedName // the Service of balancers, if there are no URLs
	Scheme      string               // of discovered balancers
	Port        string
	HasLoxiURLs bool // the cluster has this custom resource
	Zone        string
	Changed     func() // called when balancers were added or removed
	Log         logr.Logger
}

// LoxiURLs returns the LoxiURLs of this zone.
func (t *Targets) LoxiURLs(ctx context.Context) (out []loxiURL, err error) {
	if !t.HasLoxiURLs {
		return nil, nil
	}
	var list unstructured.UnstructuredList
	list.SetGroupVersionKind(LoxiURLKind())
	if err := t.Client.List(ctx, &list); err != nil {
		return nil, err
	}
	for _, item := range list.Items {
		one := loxiURL{name: item.GetName(), kind: kindDefault}
		one.text, _, _ = unstructured.NestedString(item.Object, "spec", "loxiURL")
		zone, _, _ := unstructured.NestedString(item.Object, "spec", "zone")
		if kind, _, _ := unstructured.NestedString(item.Object, "spec", "type"); kind != "" {
			one.kind = kind
		}
		if zone == "" || zone == t.Zone {
			out = append(out, one)
		}
	}
	return out, nil
}

// Reconcile sets the balancers. It ignores the request.
func (t *Targets) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	nodes := map[string]string{} // by URL
	urls := slices.Clone(t.URLs)
	more, err := t.LoxiURLs(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	for _, u := range more {
		switch u.kind {
		case kindDefault:
			urls = append(urls, strings.Split(u.text, ",")...)
		case kindCIDRPool:
		default:
			t.Log.Info("LoxiURL is ignored: its type is neither default nor cidrpool", "name", u.name, "type", u.kind)
		}
	}
	if len(urls) == 0 {
		if urls, nodes, err = t.discover(ctx); err != nil {
			return reconcile.Result{}, err
		}
	}
	var targets []balancer.Target
	for _, text := range urls {
		u, err := balancer.ParseURL(text)
		if err != nil {
			t.Log.Error(err, "balancer is ignored")
			continue
		}
		c, err := balancer.NewClient(u, t.Access)
		if err != nil {
			return reconcile.Result{}, err
		}
		targets = append(targets, balancer.Target{URL: u.String(), Node: nodes[text], Client: c})
	}
	if t.Fleet.SetTargets(targets) {
		t.Changed()
	}
	return reconcile.Result{}, nil
}

// discover returns the URLs of balancers behind a headless Service, and their nodes by URL. It
// includes pods that are not ready: a balancer with a problem needs changes, too.
func (t *Targets) discover(ctx context.Context) (urls []string, nodes map[string]string, err error) {
	var list discoveryv1.EndpointSliceList
	err = t.Client.List(ctx, &list, client.InNamespace(t.Discovery.Namespace), client.MatchingFields{serviceIndex: t.Discovery.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, nil, err
	}
	// A Service with two families has slices of both. Each pod is one balancer, by its IPv4
	// address.
	slices.SortFunc(list.Items, func(a, b discoveryv1.EndpointSlice) int {
		return cmp.Or(cmp.Compare(a.AddressType, b.AddressType), cmp.Compare(a.Name, b.Name))
	})
	nodes = map[string]string{}
	families := map[string]discoveryv1.AddressType{} // of the balancer, by pod
	for i := range list.Items {
		family := list.Items[i].AddressType
		for _, e := range list.Items[i].Endpoints {
			if len(e.Addresses) == 0 {
				continue
			}
			if e.TargetRef != nil {
				if other, isKnown := families[e.TargetRef.Name]; isKnown && other != family {
					continue
				}
				families[e.TargetRef.Name] = family
			}
			url := t.Scheme + "://" + net.JoinHostPort(e.Addresses[0], t.Port)
			if _, isKnown := nodes[url]; isKnown {
				continue
			}
			nodes[url] = ""
			if e.NodeName != nil {
				nodes[url] = *e.NodeName
			}
			urls = append(urls, url)
		}
	}
	return urls, nodes, nil
}
