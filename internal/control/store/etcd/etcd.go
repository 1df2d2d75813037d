// Package etcd keeps the objects that nodes share in etcd (docs/adr/0095-shared-store.md). It
// implements store.Remote.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"loxilb/internal/control/store"
)

const (
	callTimeout = 2 * time.Second // timeout of a call
	pageSize    = 500             // maximum number of entries per answer
	retries     = 3               // retries of a call that was not sent, with other servers
	leaseTTL    = 10              // seconds until the entry of a dead node disappears
	leaseEvery  = 3 * time.Second // interval of renewing the lease
	// EntryLife is the longest time for which the entry of a dead node remains.
	EntryLife = leaseTTL*time.Second + leaseEvery
)

// Config names the servers.
type Config struct {
	Servers        []string // HOST:PORT
	Prefix         string   // prefix of all keys, without a final slash
	TLS            bool
	CA, Cert, Key  string // files, read again for each connection
	User, Password string // empty: none
}

// Store is the entries below a prefix.
type Store struct {
	Config
	prefix string       // with a slash
	files  *credentials // nil: no TLS

	ctx         context.Context // of the client
	cancel      context.CancelFunc
	clientToken chan struct{}    // capacity 1: holds a token while client is read or created
	client      *clientv3.Client // nil: not created yet
}

// New returns a store. The first call of a method connects to the servers, which may be unreachable
// until then.
func New(c Config) (s *Store, err error) {
	s = &Store{Config: c, prefix: c.Prefix + "/", clientToken: make(chan struct{}, 1)}
	if c.TLS {
		if s.files, err = newCredentials(c.CA, c.Cert, c.Key); err != nil {
			return nil, err
		}
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// Close closes the connections, and cancels a login that a server does not answer.
func (s *Store) Close() error {
	s.cancel()
	s.clientToken <- struct{}{}
	defer func() { <-s.clientToken }()
	if s.client == nil {
		return nil
	}
	return s.client.Close()
}

// String implements store.Remote.
func (s *Store) String() string { return "etcd at " + strings.Join(s.Servers, ", ") }

// connect returns the client, and creates it if necessary. With a user, that includes a login,
// which may fail, or take callTimeout: other callers wait for it until their ctx ends.
func (s *Store) connect(ctx context.Context) (*clientv3.Client, error) {
	select {
	case s.clientToken <- struct{}{}:
		defer func() { <-s.clientToken }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if s.client != nil {
		return s.client, nil
	}
	scheme := "http://"
	options := []grpc.DialOption{grpc.WithChainUnaryInterceptor(failFast), grpc.WithConnectParams(grpc.ConnectParams{
		// Reconnect soon after the servers are back: by default, gRPC waits for up to two
		// minutes.
		Backoff:           backoff.Config{BaseDelay: callTimeout / 10, Multiplier: 1.6, Jitter: 0.2, MaxDelay: callTimeout / 2},
		MinConnectTimeout: callTimeout,
	})}
	if s.TLS {
		scheme, options = "https://", append(options, grpc.WithTransportCredentials(s.files))
	}
	c := clientv3.Config{
		Context: s.ctx, Username: s.User, Password: s.Password, DialTimeout: callTimeout, MaxUnaryRetries: retries,
		DialKeepAliveTime: callTimeout, DialKeepAliveTimeout: callTimeout, Logger: zap.NewNop(), DialOptions: options,
	}
	for _, server := range s.Servers {
		c.Endpoints = append(c.Endpoints, scheme+server)
	}
	client, err := clientv3.New(c)
	if err != nil {
		return nil, err
	}
	s.client = client
	return client, nil
}

// failFast makes a call fail, with the reason, when no server can be reached. Without it, the
// client would wait for the timeout, and not report the reason.
func failFast(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return invoke(ctx, method, req, reply, cc, append(opts, grpc.WaitForReady(false))...)
}

// call runs a call of the client, within callTimeout.
func (s *Store) call(ctx context.Context, do func(context.Context, *clientv3.Client) error) error {
	connecting, connected := context.WithTimeout(ctx, callTimeout)
	client, err := s.connect(connecting)
	late := connecting.Err() != nil
	connected()
	if err == nil {
		short, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		err = do(short, client)
		late = short.Err() != nil
	}
	if err != nil && ctx.Err() == nil && late {
		return fmt.Errorf("no answer within %s", callTimeout)
	}
	return plainError(err)
}

// plainError returns an error without the prefixes of gRPC and etcd.
func plainError(err error) error {
	s, ok := status.FromError(err)
	if err == nil || !ok {
		return markRefused(err)
	}
	text := strings.TrimPrefix(s.Message(), "etcdserver: ")
	if _, reason, dialing := strings.Cut(text, "Error while dialing: "); dialing {
		text = strings.TrimSuffix(reason, `"`)
	}
	if _, alert, refused := strings.Cut(text, "remote error: tls: "); refused {
		text = notAcceptedText(strings.TrimSuffix(alert, `"`))
	} else if strings.HasSuffix(text, "write: broken pipe") || strings.HasSuffix(text, "write: connection reset by peer") {
		text = notAcceptedText("it closed the connection") // its reason was not read in time
	}
	return errors.New(text)
}

// markRefused returns an ErrRefused for errors that mean that the server has made no change.
func markRefused(err error) error {
	var server interface {
		error
		Code() codes.Code
	}
	if !errors.As(err, &server) {
		return err
	}
	switch server.Code() {
	case codes.ResourceExhausted, codes.PermissionDenied, codes.InvalidArgument:
		text := strings.TrimPrefix(server.Error(), "etcdserver: ")
		return &refusal{text + hintFor(text)}
	}
	return err
}

// hintFor returns how to resolve an error, or "".
func hintFor(text string) string {
	if strings.HasSuffix(text, "database space exceeded") {
		return " (see --auto-compaction-retention of etcd; then etcdctl compact, defrag, and alarm disarm)"
	}
	return ""
}

// refusal is an ErrRefused with an explanation.
type refusal struct{ text string }

func (r *refusal) Error() string        { return r.text }
func (r *refusal) Is(target error) bool { return target == store.ErrRefused }

func notAcceptedText(why string) string {
	return fmt.Sprintf("the server does not accept this node's certificate, or lack of one: check --store-cert (%s)", why)
}

// Read implements store.Remote.
func (s *Store) Read(ctx context.Context, yield func(store.RemoteEntry)) (revision int64, err error) {
	start, end := s.prefix, clientv3.GetPrefixRangeEnd(s.prefix)
	for {
		var page *clientv3.GetResponse
		err := s.call(ctx, func(ctx context.Context, c *clientv3.Client) (err error) {
			page, err = c.Get(ctx, start, clientv3.WithRange(end), clientv3.WithLimit(pageSize), clientv3.WithRev(revision))
			return err
		})
		if err != nil {
			return 0, err
		}
		if revision == 0 {
			revision = page.Header.Revision
		}
		for _, kv := range page.Kvs {
			yield(store.RemoteEntry{Path: string(kv.Key[len(s.prefix):]), Value: kv.Value, Revision: kv.ModRevision})
		}
		if !page.More {
			return revision, nil
		}
		start = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
}

// Watch implements store.Remote.
func (s *Store) Watch(ctx context.Context, after int64, changed func([]store.RemoteEntry) error) error {
	client, err := s.connect(ctx)
	if err != nil {
		return plainError(err)
	}
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for answer := range client.Watch(ctx, s.prefix, clientv3.WithPrefix(), clientv3.WithRev(after+1)) {
		if err := answer.Err(); err != nil {
			return plainError(err)
		}
		for events := answer.Events; len(events) > 0; {
			revision, n := events[0].Kv.ModRevision, 0
			var entries []store.RemoteEntry
			for ; n < len(events) && events[n].Kv.ModRevision == revision; n++ {
				entries = append(entries, s.entryOf(events[n]))
			}
			events = events[n:]
			if err := changed(entries); err != nil {
				return err
			}
		}
	}
	return errors.New("the watch has ended")
}

func (s *Store) entryOf(e *clientv3.Event) store.RemoteEntry {
	entry := store.RemoteEntry{Path: string(e.Kv.Key[len(s.prefix):]), Revision: e.Kv.ModRevision}
	if e.Type == clientv3.EventTypePut {
		entry.Value = append([]byte{}, e.Kv.Value...) // not nil: that means deleted
	}
	return entry
}

// Write implements store.Remote.
func (s *Store) Write(ctx context.Context, changes []store.RemoteEntry) (revision int64, ok bool, err error) {
	compare, change, look := make([]clientv3.Cmp, len(changes)), make([]clientv3.Op, len(changes)), make([]clientv3.Op, len(changes))
	for i, c := range changes {
		key := s.prefix + c.Path
		compare[i] = clientv3.Compare(clientv3.ModRevision(key), "=", c.Revision)
		look[i] = clientv3.OpGet(key, clientv3.WithKeysOnly())
		if c.Value == nil {
			change[i] = clientv3.OpDelete(key)
		} else {
			change[i] = clientv3.OpPut(key, string(c.Value))
		}
	}
	var answer *clientv3.TxnResponse
	err = s.call(ctx, func(ctx context.Context, c *clientv3.Client) (err error) {
		answer, err = c.Txn(ctx).If(compare...).Then(change...).Else(look...).Commit()
		return err
	})
	if err != nil {
		return 0, false, err
	}
	if answer.Succeeded {
		return answer.Header.Revision, true, nil
	}
	for _, found := range answer.Responses {
		for _, kv := range found.GetResponseRange().Kvs {
			revision = max(revision, kv.ModRevision)
		}
	}
	return revision, false, nil
}

// Keep implements store.Remote, by a lease.
func (s *Store) Keep(ctx context.Context, path string, value func() []byte) error {
	var lease *clientv3.LeaseGrantResponse
	err := s.call(ctx, func(ctx context.Context, c *clientv3.Client) (err error) {
		lease, err = c.Grant(ctx, leaseTTL)
		return err
	})
	if err != nil {
		return err
	}
	defer func() {
		_ = s.call(context.WithoutCancel(ctx), func(ctx context.Context, c *clientv3.Client) error {
			_, err := c.Revoke(ctx, lease.ID)
			return err // ignored: the lease expires by itself
		})
	}()
	tick := time.NewTicker(leaseEvery)
	defer tick.Stop()
	for written := ""; ; {
		now := string(value())
		err := s.call(ctx, func(ctx context.Context, c *clientv3.Client) error {
			if now != written {
				if _, err := c.Put(ctx, s.prefix+path, now, clientv3.WithLease(lease.ID)); err != nil {
					return err
				}
				written = now
			}
			_, err := c.KeepAliveOnce(ctx, lease.ID)
			return err
		})
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// Revision implements store.Remote.
func (s *Store) Revision(ctx context.Context, path string) (entry, latest int64, err error) {
	err = s.call(ctx, func(ctx context.Context, c *clientv3.Client) error {
		found, err := c.Get(ctx, s.prefix+path, clientv3.WithKeysOnly())
		if err != nil {
			return err
		}
		latest = found.Header.Revision
		if len(found.Kvs) > 0 {
			entry = found.Kvs[0].ModRevision
		}
		return nil
	})
	return entry, latest, err
}
