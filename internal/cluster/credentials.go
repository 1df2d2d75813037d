package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"loxilb/internal/cluster/transport"
	"loxilb/internal/host/monotime"
)

// credentialsEvery is how often the files of keys and certificates are read. A change takes effect
// after two equal reads.
const credentialsEvery = time.Second

// errRenewed ends connections that must be made again with other credentials.
var errRenewed = errors.New("this node has another key or certificate now")

// followCredentials reads the files of keys and certificates periodically until ctx ends.
func (n *Node) followCredentials(ctx context.Context) {
	problem := ""
	for monotime.Sleep(ctx, credentialsEvery) {
		if n.Credentials.Reload() {
			n.renew()
		}
		was := problem
		problem = ""
		if err := n.Credentials.Problem(); err != nil {
			problem = err.Error()
		}
		if problem != was && problem != "" {
			n.Log.Warn("the key or certificates of the cluster cannot be used: the previous ones stay in use", "error", problem)
		}
	}
}

// renew connects to the other nodes again, so a rejected key or certificate is noticed now, and not
// after the next network failure. It ends connections of nodes that are no longer accepted: a
// stranger may have their key.
func (n *Node) renew() {
	n.Log.Info("the key or certificates of the cluster have been replaced")
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, s := range n.sources {
		if err := s.recheck(n.Credentials); err != nil {
			n.Log.Warn("refused a node", "from", name, "error", err)
		}
	}
	for _, p := range n.peers {
		p.reconnect(errRenewed)
	}
}

// recheck ends the source's connection if its credentials are no longer accepted.
func (s *source) recheck(credentials *transport.Credentials) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live == nil {
		return nil
	}
	err := s.live.Certified(credentials)
	if err != nil {
		_ = s.live.Abort()
	}
	return err
}

// isPlanned reports whether this node ended a connection to make it again at once.
func isPlanned(err error) bool { return errors.Is(err, errIsolated) || errors.Is(err, errRenewed) }

// expirySoon is how long before its end a certificate is a problem.
const expirySoon = 7 * 24 * time.Hour

// credentialProblems describes problems of this node's own key or certificate.
func (n *Node) credentialProblems(now time.Time) (list []string) {
	if err := n.Credentials.Problem(); err != nil {
		list = append(list, fmt.Sprintf("the key or certificates of the cluster cannot be used, so the previous ones stay in use: %v", err))
	}
	switch end := n.Credentials.Expires(); {
	case now.After(end):
		list = append(list, fmt.Sprintf("the certificate of this node ended at %s: nodes that lose their connection do not accept it", end.Format(time.RFC3339)))
	case end.Sub(now) < expirySoon:
		list = append(list, fmt.Sprintf("the certificate of this node ends at %s", end.Format(time.RFC3339)))
	}
	return list
}
