package datapath_test

import (
	"encoding/hex"
	"errors"
	"fmt"
	"testing"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb/report"
	"loxilb/internal/pkt"
	"loxilb/test/packet/lab"
)

const (
	ftpService   = "10.0.0.1:21/tcp helper=ftp endpoints=192.168.1.10:21"
	ftpPerClient = int(bpf.TcHelperLimitFTP_PER_CLIENT)
)

// ftpSend sends a packet, and returns it as it left.
func ftpSend(l *lab.Lab, link *lab.Link, format string, args ...any) (lab.Result, error) {
	p, err := pkt.Parse(fmt.Sprintf(format, args...))
	if err != nil {
		return lab.Result{}, err
	}
	return l.Send(link, l.Arriving(link, p).Build())
}

// ftpControl opens a control connection of a client, on which the endpoint announces ports.
func ftpControl(l *lab.Lab, client string, port int, announced ...int) error {
	_, first := ftpSend(l, l.Client, "tcp %s:%d > 10.0.0.1:21 S seq 1000", client, port)
	_, second := ftpSend(l, l.Server, "tcp 192.168.1.10:21 > %s:%d SA seq 5000 ack 1001", client, port)
	_, third := ftpSend(l, l.Client, "tcp %s:%d > 10.0.0.1:21 A seq 1001 ack 5001", client, port)
	if err := errors.Join(first, second, third); err != nil {
		return err
	}
	seq := 5001
	for _, a := range announced {
		text := fmt.Sprintf("229 ok (|||%d|)\r\n", a)
		res, err := ftpSend(l, l.Server, "tcp 192.168.1.10:21 > %s:%d PA seq %d ack 1001 data %s", client, port, seq, hex.EncodeToString([]byte(text)))
		if err == nil && res.Verdict != "out" {
			err = fmt.Errorf("%s: %s %s", text, res.Verdict, res.Reason)
		}
		if err != nil {
			return err
		}
		seq += len(text)
	}
	return nil
}

// ftpOpens fails unless a client's connection to a port of the VIP is opened, or not.
func ftpOpens(l *lab.Lab, client string, from, port int, want string) error {
	res, err := ftpSend(l, l.Client, "tcp %s:%d > 10.0.0.1:%d S seq 1", client, from, port)
	if err == nil && res.Verdict != want {
		err = fmt.Errorf("data connection of %s to port %d: %s, want %s", client, port, res.Verdict, want)
	}
	return err
}

// ftpCounts fails unless the counts are these.
func ftpCounts(l *lab.Lab, what string, expected, client uint64) (e report.FTPExpectations, err error) {
	e, err = l.Datapath.FTPExpectations()
	if err == nil && (e.Expected != expected || e.Refused["client"] != client || e.Refused["port"] != 0) {
		err = fmt.Errorf("%s: %+v, want %d expected and %d refused", what, e, expected, client)
	}
	return e, err
}

// TestFTPPerClient checks the limit of expected data connections of a client: expectations of other
// clients stay, and a used one makes room for another.
func TestFTPPerClient(t *testing.T) {
	t.Parallel()
	inLab(t, ftpService, func(l *lab.Lab) error {
		const port = 30000
		err := ftpControl(l, "1.1.1.2", 4000, port)
		for i := range ftpPerClient + 3 {
			err = errors.Join(err, ftpControl(l, "1.1.1.1", 4000+i, port+i))
		}
		_, counted := ftpCounts(l, "the limit is reached", uint64(ftpPerClient)+1, 3)
		return errors.Join(
			err, counted,
			ftpOpens(l, "1.1.1.1", 50000, port+ftpPerClient, "pass"),
			ftpOpens(l, "1.1.1.1", 50000, port+ftpPerClient-1, "out"),
			ftpOpens(l, "1.1.1.2", 50000, port, "out"),
			ftpControl(l, "1.1.1.1", 5000, port+100),
			ftpOpens(l, "1.1.1.1", 50001, port+100, "out"),
			errOf(ftpCounts(l, "three were opened", uint64(ftpPerClient)-1, 3)),
		)
	})
}

func errOf[T any](_ T, err error) error { return err }

// TestFTPTLS checks that a control connection that changes to TLS is counted once. Replies by the
// client, within a line, or repeated do not count.
func TestFTPTLS(t *testing.T) {
	t.Parallel()
	inLab(t, ftpService, func(l *lab.Lab) error {
		send := func(link *lab.Link, seq int, text string) error {
			from, to, ack := "1.1.1.1:4000", "10.0.0.1:21", 5001
			if link == l.Server {
				from, to, ack = "192.168.1.10:21", "1.1.1.1:4000", 1001
			}
			res, err := ftpSend(l, link, "tcp %s > %s PA seq %d ack %d data %s", from, to, seq, ack, hex.EncodeToString([]byte(text)))
			if err == nil && res.Verdict != "out" {
				err = fmt.Errorf("%q: %s %s", text, res.Verdict, res.Reason)
			}
			return err
		}
		const reply = "234 Proceed with negotiation.\r\n"
		err := errors.Join(
			ftpControl(l, "1.1.1.1", 4000), send(l.Client, 1001, reply), send(l.Server, 5001, "500 "), send(l.Server, 5005, reply),
		)
		for range 2 {
			err = errors.Join(err, send(l.Server, 5005+len(reply), reply))
		}
		e, counted := l.Datapath.FTPExpectations()
		if counted == nil && (e.Refused["tls"] != 1 || e.Expected != 0 || e.Refused["client"] != 0) {
			counted = fmt.Errorf("%+v, want one that changes to TLS", e)
		}
		return errors.Join(err, counted)
	})
}

// TestFTPBounded checks that a client has at most two rows for each expectation that it may have,
// however many data connections it opens.
func TestFTPBounded(t *testing.T) {
	t.Parallel()
	inLab(t, ftpService, func(l *lab.Lab) error {
		var errs []error
		for i := range 2 * ftpPerClient {
			errs = append(errs, ftpControl(l, "1.1.1.1", 4000+i, 30000+i), ftpOpens(l, "1.1.1.1", 50000, 30000+i, "out"))
		}
		e, err := ftpCounts(l, "all were opened", 0, 0)
		if err == nil && e.Rows > uint64(2*ftpPerClient) {
			err = fmt.Errorf("%d rows, want at most %d", e.Rows, 2*ftpPerClient)
		}
		return errors.Join(append(errs, err)...)
	})
}

// TestFTPFull checks the count of rows in use of the table that fragments share.
func TestFTPFull(t *testing.T) {
	t.Parallel()
	inLab(t, ftpService, func(l *lab.Lab) error {
		errs := []error{ftpControl(l, "1.1.1.1", 4000, 30000)}
		for i := range 100 {
			_, err := ftpSend(l, l.Client, "udp 1.1.2.1:4000 > 10.0.0.1:53 ipid %d mf len 1472 udplen 3000", i)
			errs = append(errs, err)
		}
		e, err := ftpCounts(l, "one is expected", 1, 0)
		if err == nil && (e.Rows != 102 || e.Max == 0) {
			err = fmt.Errorf("%d of %d rows are in use, want 102", e.Rows, e.Max)
		}
		return errors.Join(append(errs, err)...)
	})
}
