package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"loxilb/internal/cluster/transport"
	"loxilb/internal/host/monotime"
)

// credentialsEvery is how often the files of keys and certificates are read. A change counts once
// it was read twice.
const credentialsEvery = time.Second

// errRenewed ends connections to make them again with other credentials.
var errRenewed = errors.New("this node has another key or certificate now")

// followCredentials reads the files of keys and certificates again and again, until ctx ends.
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
			n.Log.Warn("the key or certificates of the cluster cannot be used: those before stay in use", "error", problem)
		}
	}
}

// renew makes the connections to other nodes again, so they learn now, not after the next failure
// of the network, whether they accept what this node shows. It ends connections of nodes that this
// one no longer accepts: their key may be a stranger's by now.
func (n *Node) renew() {
	n.Log.Info("the key or certificates of the cluster have been replaced")
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, s := range n.sources {
		if err := s.recheck(n.Credentials); err != nil {
			n.Log.Warn("a node is turned away", "from", name, "error", err)
		}
	}
	for _, p := range n.peers {
		p.reconnect(errRenewed)
	}
}

// recheck ends the connection of a node that is no longer accepted.
func (s *source) recheck(credentials *transport.Credentials) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live == nil {
		return nil
	}
	err := s.live.Certified(credentials)
	if err != nil {
		_ = s.live.Close()
	}
	return err
}

// isPlanned reports whether a connection was ended to make it again at once.
func isPlanned(err error) bool { return errors.Is(err, errCut) || errors.Is(err, errRenewed) }

// endsSoon is how long before its end a certificate is a problem.
const endsSoon = 7 * 24 * time.Hour

// credentialProblems returns what is wrong with the own key or certificate.
func (n *Node) credentialProblems(now time.Time) (list []string) {
	if err := n.Credentials.Problem(); err != nil {
		list = append(list, fmt.Sprintf("the key or certificates of the cluster cannot be used, so those before stay in use: %v", err))
	}
	switch end := n.Credentials.Expires(); {
	case now.After(end):
		list = append(list, fmt.Sprintf("the certificate of this node ended at %s: nodes that lose their connection do not accept it", end.Format(time.RFC3339)))
	case end.Sub(now) < endsSoon:
		list = append(list, fmt.Sprintf("the certificate of this node ends at %s", end.Format(time.RFC3339)))
	}
	return list
}
