package rig

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"loxilb/test/netnstest"
)

// Networks of every cluster.
const (
	serviceNetworks = "10.96.0.0/16,fd00:96::/112"
	podNetworks     = "10.244.0.0/16,fd00:244::/48"
)

const apiserverPort = "6443"

// Admins is the group that may do everything.
const Admins = "system:masters"

// ControlPlane is an apiserver with its etcd on a host of a lab. Tests connect to it by
// DialContext, for instance as Dial of client-go's rest.Config, or by programs on its host.
type ControlPlane struct {
	host    *netnstest.Host
	address netip.Addr
	dir     string
	program string
	ca      *authority
	config  string       // kubeconfig of an administrator
	admin   *http.Client // an administrator's client of the apiserver

	apiserver *netnstest.Process
	others    map[string]*netnstest.Process // by component
}

// ControlPlaneOptions are the options of a control plane.
type ControlPlaneOptions struct {
	Dir         string     // for certificates, logs and data
	Address     netip.Addr // of the host; the zero value: an address on lo, without nodes
	Controllers bool       // start the controller manager, too
	Only        []string   // its controllers to run; empty: all
	Scheduler   bool
}

// StartControlPlane starts a control plane on a host and waits until it is ready. It ends with the
// lab.
func StartControlPlane(ctx context.Context, host *netnstest.Host, o ControlPlaneOptions) (*ControlPlane, error) {
	program, err := Program()
	if err != nil {
		return nil, err
	}
	p := &ControlPlane{host: host, address: o.Address, dir: o.Dir, program: program, others: map[string]*netnstest.Process{}}
	if !p.address.IsValid() {
		p.address = netip.MustParseAddr("10.77.0.1")
		if err := host.AddAddress("lo", netip.PrefixFrom(p.address, p.address.BitLen())); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(p.dir, "log"), 0o755), p.makeCredentials()); err != nil {
		return nil, fmt.Errorf("prepare the control plane: %w", err)
	}
	if err := p.startEtcd(); err != nil {
		return nil, err
	}
	if err := p.StartAPIServer(ctx); err != nil {
		return nil, err
	}
	if o.Controllers {
		err = errors.Join(err, p.startControllers(o.Only))
	}
	if o.Scheduler {
		err = errors.Join(err, p.startScheduler())
	}
	return p, err
}

// makeCredentials creates the CA, the apiserver's certificate, an administrator's credentials and
// the key of service accounts.
func (p *ControlPlane) makeCredentials() (err error) {
	if p.ca, err = newAuthority(filepath.Join(p.dir, "pki")); err != nil {
		return err
	}
	server, err := p.ca.issue(pkix.Name{CommonName: "kube-apiserver"}, p.address, netip.MustParseAddr("127.0.0.1"),
		netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("fd00:96::1"))
	if err != nil {
		return err
	}
	accounts, err := p.ca.issue(pkix.Name{CommonName: "service accounts"})
	if err != nil {
		return err
	}
	if p.config, err = p.Kubeconfig("admin", Admins); err != nil {
		return err
	}
	if p.admin, err = p.administrator(); err != nil {
		return err
	}
	return errors.Join(p.ca.write("apiserver.crt", server.cert), p.ca.write("apiserver.key", server.key), p.ca.write("accounts.key", accounts.key))
}

// administrator returns a client with an administrator's certificate.
func (p *ControlPlane) administrator() (*http.Client, error) {
	id, err := p.ca.issue(pkix.Name{CommonName: "admin", Organization: []string{Admins}})
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(id.cert, id.key)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(p.ca.cert)
	return &http.Client{Timeout: getTimeout, Transport: &http.Transport{
		DialContext: p.DialContext, TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots},
	}}, nil
}

// getTimeout is how long the apiserver may take for an answer.
const getTimeout = 10 * time.Second

// Get reads an object or a list, such as /api/v1/nodes/n1. Tests that poll use it instead of
// kubectl, whose start takes more time than the answer.
func (p *ControlPlane) Get(ctx context.Context, path string, out any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.Server()+path, nil)
	if err != nil {
		return err
	}
	answer, err := p.admin.Do(request)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(answer.Body)
	if err := errors.Join(err, answer.Body.Close()); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("get %s: %s: %s", path, answer.Status, text)
	}
	return json.Unmarshal(text, out)
}

// start starts a component, which logs into its LogFile.
func (p *ControlPlane) start(component string, args ...string) (*netnstest.Process, error) {
	log, err := os.OpenFile(p.LogFile(component), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	return p.host.Start(netnstest.Command{Args: append([]string{p.program, component}, args...), Output: log})
}

// LogFile returns the path of a component's log.
func (p *ControlPlane) LogFile(component string) string {
	return filepath.Join(p.dir, "log", component+".log")
}

func (p *ControlPlane) startEtcd() (err error) {
	const client, peer = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
	p.others["etcd"], err = p.start("etcd", "--data-dir="+filepath.Join(p.dir, "etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls="+client, "--advertise-client-urls="+client, "--listen-peer-urls="+peer)
	return err
}

// StartAPIServer starts the apiserver again, after StopAPIServer, and waits until it is ready.
func (p *ControlPlane) StartAPIServer(ctx context.Context) (err error) {
	p.apiserver, err = p.start("kube-apiserver",
		"--etcd-servers=http://127.0.0.1:2379", "--secure-port="+apiserverPort,
		"--advertise-address="+p.address.String(), "--external-hostname="+p.address.String(), "--bind-address=0.0.0.0",
		"--tls-cert-file="+p.ca.path("apiserver.crt"), "--tls-private-key-file="+p.ca.path("apiserver.key"),
		"--client-ca-file="+p.ca.path("ca.crt"), "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+p.ca.path("accounts.key"), "--service-account-signing-key-file="+p.ca.path("accounts.key"),
		"--service-cluster-ip-range="+serviceNetworks, "--allow-privileged", "--endpoint-reconciler-type=lease",
		"--kubelet-preferred-address-types=InternalIP")
	if err != nil {
		return err
	}
	return p.waitReady(ctx, p.apiserver, "kube-apiserver", "https://127.0.0.1:"+apiserverPort+"/readyz")
}

// StopAPIServer ends the apiserver as a crash would.
func (p *ControlPlane) StopAPIServer() { p.apiserver.Kill() }

// PauseAPIServer suspends the apiserver until ResumeAPIServer: connections stay open without
// answers.
func (p *ControlPlane) PauseAPIServer() { p.apiserver.Signal(syscall.SIGSTOP) }

// ResumeAPIServer resumes a paused apiserver, which first handles all pending requests, and waits
// until it is ready.
func (p *ControlPlane) ResumeAPIServer(ctx context.Context) error {
	p.apiserver.Signal(syscall.SIGCONT)
	return p.waitReady(ctx, p.apiserver, "kube-apiserver", "https://127.0.0.1:"+apiserverPort+"/readyz")
}

// SlowAPIServer slows the apiserver down by periodic pauses until the returned function is called.
func (p *ControlPlane) SlowAPIServer(work, pause time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() {
		defer p.apiserver.Signal(syscall.SIGCONT)
		for ctx.Err() == nil {
			p.apiserver.Signal(syscall.SIGSTOP)
			sleep(ctx, pause)
			p.apiserver.Signal(syscall.SIGCONT)
			sleep(ctx, work)
		}
	})
	return func() {
		cancel()
		ended.Wait()
	}
}

// sleep waits for a duration, or until the context ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func (p *ControlPlane) startControllers(only []string) error {
	config, err := p.Kubeconfig("system:kube-controller-manager")
	if err != nil {
		return err
	}
	p.others["controllers"], err = p.start("kube-controller-manager", "--kubeconfig="+config, "--leader-elect=false",
		"--service-account-private-key-file="+p.ca.path("accounts.key"), "--root-ca-file="+p.ca.path("ca.crt"), "--use-service-account-credentials",
		"--allocate-node-cidrs", "--cluster-cidr="+podNetworks, "--node-cidr-mask-size-ipv4=24", "--node-cidr-mask-size-ipv6=64",
		"--service-cluster-ip-range="+serviceNetworks,
		"--node-monitor-grace-period=20s", "--controllers="+cmp.Or(strings.Join(only, ","), "*"))
	return err
}

func (p *ControlPlane) startScheduler() error {
	config, err := p.Kubeconfig("system:kube-scheduler")
	if err != nil {
		return err
	}
	p.others["scheduler"], err = p.start("kube-scheduler", "--kubeconfig="+config, "--leader-elect=false")
	return err
}

// waitReady waits until a component answers with status 200 at a URL on its host.
func (p *ControlPlane) waitReady(ctx context.Context, process *netnstest.Process, component, url string) error {
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{
		DialContext:     p.DialContext,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // only readiness is read
	}}
	defer client.CloseIdleConnections()
	for {
		err := answersOK(ctx, client, url)
		if err == nil {
			return nil
		}
		select {
		case <-process.Done():
			return fmt.Errorf("%s ended before it was ready: %s", component, p.lastLines(component))
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w: %s", component, err, p.lastLines(component))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// answersOK returns an error unless a URL answers with status 200.
func answersOK(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusOK {
		err = errors.Join(err, fmt.Errorf("%s: %s", response.Status, text))
	}
	return errors.Join(err, response.Body.Close())
}

// lastLines returns the end of a component's log.
func (p *ControlPlane) lastLines(component string) string {
	text, err := os.ReadFile(p.LogFile(component))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}

// Address returns the address of the apiserver.
func (p *ControlPlane) Address() netip.Addr { return p.address }

// Server returns the apiserver's URL.
func (p *ControlPlane) Server() string {
	return "https://" + net.JoinHostPort(p.address.String(), apiserverPort)
}

// DialContext opens a connection from the apiserver's host.
func (p *ControlPlane) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return p.host.DialContext(ctx, network, address)
}

// Kubeconfig writes the kubeconfig of a user in groups, such as Admins, and returns its path.
func (p *ControlPlane) Kubeconfig(user string, groups ...string) (string, error) {
	return p.ca.kubeconfig(p.Server(), user, groups...)
}

// Certificate issues a certificate for a server at an address by the cluster's CA. It returns the
// certificate, its key and the CA's certificate, as PEM.
func (p *ControlPlane) Certificate(address netip.Addr) (cert, key, ca []byte, err error) {
	id, err := p.ca.issue(pkix.Name{CommonName: address.String()}, address)
	return id.cert, id.key, p.ca.pem, err
}

// Kubectl runs kubectl as an administrator and returns its output.
func (p *ControlPlane) Kubectl(args ...string) (string, error) {
	return p.Run(append([]string{kubectl()}, args...)...)
}

// Run runs a program next to the apiserver, with an administrator's kubeconfig in its environment,
// and returns its output.
func (p *ControlPlane) Run(args ...string) (string, error) {
	process, err := p.host.Start(netnstest.Command{Args: args, Env: []string{"KUBECONFIG=" + p.config}})
	if err != nil {
		return "", err
	}
	if err := process.Wait(); err != nil {
		return process.Output(), fmt.Errorf("run %q: %w: %s", args, err, process.Output())
	}
	return process.Output(), nil
}

// Processes returns the apiserver and etcd.
func (p *ControlPlane) Processes() []*netnstest.Process {
	return []*netnstest.Process{p.apiserver, p.others["etcd"]}
}

// KubectlProgram returns the path of kubectl.
func (p *ControlPlane) KubectlProgram() string { return kubectl() }
