package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"loxilb/internal/config"
	"loxilb/internal/control/desired"
	"loxilb/internal/control/reconcile"
	"loxilb/internal/control/status"
	"loxilb/internal/control/store"
	"loxilb/internal/control/store/etcd"
	"loxilb/internal/diagnose/doctor"
)

// share replaces the shared objects by the content of --store, and follows its changes until stop
// is called. It must precede the boot files, since --store holds their objects, too.
func share(ctx context.Context, c *config.Config, state *desired.State, log *slog.Logger) (stop func() error, err error) {
	if len(c.Store.Servers) == 0 {
		return func() error { return nil }, state.MarkUnshared()
	}
	s := c.Store
	remote, err := etcd.New(etcd.Config{
		Servers: s.Servers, Prefix: s.Prefix, TLS: s.TLS, CA: s.CA, Cert: s.Cert, Key: s.Key, User: s.User, Password: s.Password,
	})
	if err != nil {
		return nil, &config.Error{Flag: "--store", Reason: err.Error()}
	}
	if err := state.Share(remote, nodeName(c), store.Join(s.Join)); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	following.Go(func() { state.Follow(ctx) })
	log.Info("shared objects follow the shared store", "store", remote.String(), "prefix", s.Prefix, "node", nodeName(c))
	return func() error {
		cancel()
		err := remote.Close()
		following.Wait()
		if errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	}, nil
}

// nodeName returns the name of this node in the cluster.
func nodeName(c *config.Config) string { return cmp.Or(c.Cluster.Node, hostname()) }

// storeStatuses returns the statuses of the shared store, and of its entries that are not objects.
func (p *daemon) storeStatuses() (list []status.Status) {
	remote, ok := p.state.Remote()
	if !ok {
		return nil
	}
	s := status.Status{ID: status.ID{Kind: reconcile.TaskKind, Key: sharedStoreTask}, Desired: 1, Applied: 1}
	if remote.Err != nil {
		s.Since, s.Err, s.Attempts = remote.Since, fmt.Errorf("%s: %w", remote.Servers, remote.Err), 1
	}
	list = append(list, s)
	for _, one := range remote.Problems {
		list = append(list, status.Status{
			ID: status.ID{Kind: sharedEntryKind, Key: one.Path}, Desired: 1, Since: one.Since,
			Err: fmt.Errorf("it is in the shared store and not served: %s", one.Reason),
		})
	}
	return list
}

// sharedStoreTask is the key of the status of the shared store.
const sharedStoreTask = "shared store"

// sharedEntryKind is the kind of statuses of entries of the shared store that are not objects.
const sharedEntryKind = "shared entry"

// sharedStore returns the state of the shared store for the doctor; nil: there is none.
func (p *daemon) sharedStore() *doctor.SharedStore {
	remote, ok := p.state.Remote()
	if !ok {
		return nil
	}
	out := &doctor.SharedStore{Servers: remote.Servers, Err: remote.Err, Since: remote.Since}
	if remote.DuplicateName {
		out.DuplicateName = remote.Node
	}
	for _, one := range remote.Problems {
		out.Entries = append(out.Entries, doctor.Problem{
			About: one.Path, What: one.Reason, Hint: "write the object again, or remove the entry: etcdctl del " + shellWord(p.config.Store.Prefix+"/"+one.Path),
		})
	}
	return out
}

// plainWord matches words that need no quotes in a shell.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:-]+$`)

// shellWord quotes a word for bash if necessary: other programs may write any key to the store.
func shellWord(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	quoted := strconv.QuoteToASCII(s)
	return "$'" + strings.ReplaceAll(quoted[1:len(quoted)-1], "'", `\'`) + "'"
}
