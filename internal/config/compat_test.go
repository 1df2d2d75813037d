package config

import (
	"strings"
	"testing"

	"loxilb/internal/contract"
)

// manifests are command lines from the manifests of kube-loxilb, and from the documentation and
// tests of the existing loxilb.
var manifests = []string{
	"",
	"--bgp --egr-hooks --blacklist=cni[0-9a-z]|veth.|flannel.|cali.|tunl.|vxlan[.]calico",
	"--egr-hooks --blacklist=cni[0-9a-z]|veth.|flannel.|cali.|tunl.|vxlan[.]calico",
	"--egr-hooks --blacklist=cni[0-9a-z]|veth.|flannel.|cali.|tunl.|vxlan[.]calico --localsockpolicy",
	"--ipvs-compat --clusterinterface=eth1",
	"--egr-hooks --ipvs-compat --fallback",
	"--peer",
	"-b",
	"--bgp --cluster=172.17.0.3 --self=0 --ka=172.17.0.3:172.17.0.2",
	"--cluster=none --self=1 --ka=none --rpc=grpc --vip-adv-repeat=5 --vip-adv-dev vlan11",
	"--whitelist=eth1|eth2 --loglevel=trace -p --disable-crc32 --rss-enable --passive-probe",
	"--proxyonlymode --sockmapsupport --log-max-size=10 --log-no-compress",
	"--cloud=aws --cloudcidrblock=123.123.123.0/24 --cloudinstance=a --k8s-api=cluster -n",
	"--oauth2 --oauth2provider=google --oauth2google-clientid=x --databasehost=10.0.0.1",
}

// P52 Each command line in the manifests of the existing loxilb starts with --compat, or its
// environment variable, with the API at the same place
func TestManifests(t *testing.T) {
	t.Parallel()
	for _, line := range manifests {
		c, code, msg := run(map[string]string{"LOXILB_COMPAT": "1"}, strings.Fields(line)...)
		if code != ExitOK {
			t.Errorf("%s: got %s, want code ExitOK", line, msg)
			continue
		}
		aside := strings.Contains(line, "--peer") || strings.Contains(line, "--proxyonlymode")
		attached := c.Whitelist == nil || c.Whitelist.MatchString("eth1")
		if attached == aside || c.LocalSockets == aside {
			t.Errorf("%s: attached %t, own sockets %t", line, attached, c.LocalSockets)
		}
		if c.API.Plain.String() != "0.0.0.0:11111" || c.BootFiles != "/etc/loxilb/" || c.MetricsOff == strings.Contains(line, "-p ") ||
			c.OpenAccess != "anyone who can reach 0.0.0.0:11111 can change everything without a token" {
			t.Errorf(`%s: got %+v, want c.API.Plain == "0.0.0.0:11111", c.BootFiles == "/etc/loxilb/", c.MetricsOff != strings.Contains(line, `+
				`"-p "), c.OpenAccess == "anyone who can reach 0.0.0.0:11111 can change everything without a token"`,
				line, c)
		}
	}
}

// TestCompat checks that each unsupported flag is accepted with a sentence, and that the user's
// flags override --compat.
func TestCompat(t *testing.T) {
	t.Parallel()
	for _, f := range contract.AllFlags() {
		if f.State != contract.Unsupported {
			continue
		}
		value := "--" + f.Name + "=9"
		if f.Default == "false" {
			value = "--" + f.Name
		}
		c, code, msg := run(nil, "--compat", value)
		if code != ExitOK || len(c.Notes) != 1 || c.Notes[0] != "--"+f.Name+" has no effect: "+f.Note {
			t.Errorf("%s: got %d %s, want success with the flag's note", value, code, msg)
		}
	}
	dir := t.TempDir()
	token, pem := file(t, dir, "token", "s3cret", 0o644), pemFile(t, dir)
	const anybody = "anyone who can reach 0.0.0.0:11111 can change everything without a token"
	for _, tc := range []struct{ env, args, plain, level, files, open string }{
		{"", "", "0.0.0.0:11111", "debug", "/etc/loxilb/", anybody},
		{"HOST=10.0.0.1", "--loglevel=error", "10.0.0.1:11111", "error", "/etc/loxilb/", strings.Replace(anybody, "0.0.0.0", "10.0.0.1", 1)},
		{"", "--host=127.0.0.1 --config-path=/c", "127.0.0.1:11111", "debug", "/c", "every user of this machine can change everything at 127.0.0.1:11111"},
		{"", "--host=127.0.0.1 --insecure=false", "127.0.0.1:11111", "debug", "/etc/loxilb/", ""},
		{"", "--manualtoken --manualtokenvalue=" + token, "0.0.0.0:11111", "debug", "/etc/loxilb/", "tokens go to 0.0.0.0:11111 unencrypted"},
		{"", "--userservice --host=::1", "[::1]:11111", "debug", "/etc/loxilb/", ""},
		{"", "--tls --tls-certificate=" + pem + " --tls-key=" + pem, "0.0.0.0:11111", "debug", "/etc/loxilb/", anybody + ", and " + strings.Replace(anybody, "11111", "8091", 1)},
	} {
		env := map[string]string{}
		if k, v, ok := strings.Cut(tc.env, "="); ok {
			env[k] = v
		}
		c, code, msg := run(env, append(strings.Fields(tc.args), "--compat")...)
		if code != ExitOK || c.API.Plain.String() != tc.plain || c.LogLevel.String() != tc.level || c.BootFiles != tc.files || c.OpenAccess != tc.open {
			t.Errorf("got %s %s: %d %s %+v, want code ExitOK, c.API.Plain == tc.plain, "+
				"c.LogLevel == tc.level, c.BootFiles == tc.files, c.OpenAccess == tc.open",
				tc.env, tc.args, code, msg, c)
		}
	}
	for line, want := range map[string]string{
		"--compat --insecure=false":  "or add --insecure",
		"--compat --config-path=etc": "--config-path \"etc\" is not an absolute path",
		"--compat --attach=x":        "is unknown (allowed: auto",
	} {
		if _, code, msg := run(nil, strings.Fields(line)...); code != ExitUsage || !strings.Contains(msg, want) {
			t.Errorf("%s: got %d %s, want code ExitUsage, want in msg", line, code, msg)
		}
	}
	if c, code, msg := run(map[string]string{"LOXILB_COMPAT": "0"}); code != ExitOK || c.BootFiles != "" || c.OpenAccess != "" || c.MetricsOff {
		t.Errorf("got %d %s %+v, want code ExitOK, no c.BootFiles, no c.OpenAccess, not c.MetricsOff", code, msg, c)
	}
}
