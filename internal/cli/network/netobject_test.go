package network_test

import (
	"strings"
	"testing"

	"loxilb/internal/cli/session"
	"loxilb/test/clitest"
)

// TestNetObjectRequests checks that each command about the kernel's network, by each of its names,
// sends one request of the contract.
func TestNetObjectRequests(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"create ip 10.0.0.1/24 eth0":                              `POST /netlox/v1/config/ipv4address {"dev":"eth0","ipAddress":"10.0.0.1/24"}`,
		"create ipv4address 2001:db8::1/64 eth0":                  `POST /netlox/v1/config/ipv4address {"dev":"eth0","ipAddress":"2001:db8::1/64"}`,
		"delete ipaddress 10.0.0.1/24 eth0":                       "DELETE /netlox/v1/config/ipv4address/10.0.0.1/24/dev/eth0",
		"delete ip 2001:db8::1/64 eth0 --force":                   "DELETE /netlox/v1/config/ipv4address/2001:db8::1/64/dev/eth0?force=true",
		"create route 10.1.0.0/16 10.0.0.254":                     `POST /netlox/v1/config/route {"destinationIPNet":"10.1.0.0/16","gateway":"10.0.0.254"}`,
		"create route 10.1.0.0/16 10.0.0.254 --proto=static":      `POST /netlox/v1/config/route {"destinationIPNet":"10.1.0.0/16","gateway":"10.0.0.254","protocol":"static"}`,
		"delete route 10.1.2.3/16":                                "DELETE /netlox/v1/config/route/destinationIPNet/10.1.0.0/16",
		"create nei 10.0.0.5 eth0 --macAddress=00:11:22:aa:bb:cc": `POST /netlox/v1/config/neighbor {"dev":"eth0","ipAddress":"10.0.0.5","macAddress":"00:11:22:aa:bb:cc"}`,
		"create vlan 100":                                         `POST /netlox/v1/config/vlan {"vid":100}`,
		"delete vlan 100":                                         "DELETE /netlox/v1/config/vlan/100",
		"create vlan_member 100 eth0 --tagged":                    `POST /netlox/v1/config/vlan/100/member {"dev":"eth0","tagged":true}`,
		"create vlanMember 100 eth0":                              `POST /netlox/v1/config/vlan/100/member {"dev":"eth0","tagged":false}`,
		"delete vlan-member 100 eth0 --tagged":                    "DELETE /netlox/v1/config/vlan/100/member/eth0/tagged/true",
		"delete vlanmember 100 eth0":                              "DELETE /netlox/v1/config/vlan/100/member/eth0/tagged/false",
		"create vxlan 78 eth0":                                    `POST /netlox/v1/config/tunnel/vxlan {"epIntf":"eth0","vxlanID":78}`,
		"delete vxlan 78":                                         "DELETE /netlox/v1/config/tunnel/vxlan/78",
		"create vxlan_peer 78 192.168.0.2":                        `POST /netlox/v1/config/tunnel/vxlan/78/peer {"peerIP":"192.168.0.2"}`,
		"delete vxlanPeer 78 192.168.0.2":                         "DELETE /netlox/v1/config/tunnel/vxlan/78/peer/192.168.0.2",
		"delete route 10.1.0.0/16 --force":                        "DELETE /netlox/v1/config/route/destinationIPNet/10.1.0.0/16?force=true",
		"create route 10.1.0.0/16 10.0.0.254 --force":             `POST /netlox/v1/config/route?force=true {"destinationIPNet":"10.1.0.0/16","gateway":"10.0.0.254"}`,
		"delete vlan 100 --force":                                 "DELETE /netlox/v1/config/vlan/100?force=true",
		"create vlanmember 100 eth0 --force":                      `POST /netlox/v1/config/vlan/100/member?force=true {"dev":"eth0","tagged":false}`,
		"delete vxlan 78 --force":                                 "DELETE /netlox/v1/config/tunnel/vxlan/78?force=true",
		"create fdb 00:11:22:AA:BB:CC eth0":                       `POST /netlox/v1/config/fdb {"dev":"eth0","macAddress":"00:11:22:AA:BB:CC"}`,
		"delete fdb 00:11:22:AA:BB:CC eth0":                       "DELETE /netlox/v1/config/fdb/00:11:22:aa:bb:cc/dev/eth0",
		"delete neigh 2001:db8::5 eth0":                           "DELETE /netlox/v1/config/neighbor/2001:db8::5/dev/eth0",
	} {
		s := clitest.NewServer(t, 200, clitest.Success)
		if got := clitest.Run(t, "", s.Args(args)...); got.Code != 0 || got.Stdout != "success\n" || len(s.Requests) != 1 || s.Requests[0] != want {
			t.Errorf("%s: %+v, requests %q, want %q", args, got, s.Requests, want)
		}
	}
}

// TestNetObjectMistakes checks that a wrong command line gives one sentence, and no request.
func TestNetObjectMistakes(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"create ip 10.0.0.1/24":                       "missing argument INTERFACE: loxicmd create ip IP/LENGTH INTERFACE",
		"create ip 10.0.0.1/24 eth0 eth1":             `unexpected argument "eth1": loxicmd create ip IP/LENGTH INTERFACE`,
		"create ip 10.0.0.1 eth0":                     `IP/LENGTH "10.0.0.1" is not an address with the length of its network`,
		"create route 10.1.0.0/16":                    "missing argument GATEWAY",
		"create route 10.1.0.0/16 x":                  `gateway "x" is not an IP address`,
		"create route 10.1.0.0/16 10.0.0.1 --proto=x": `protocol "x" is not a protocol`,
		"create neighbor 10.0.0.5 eth0":               "--macAddress is missing",
		"create vlan 5000":                            `vid "5000" is not the number of a VLAN`,
		"create vlanmember 100":                       "missing argument INTERFACE",
		"create vxlan 78":                             "missing argument INTERFACE",
		"create vxlanpeer 78 x":                       `IP "x" is not an IP address`,
		"create fdb x eth0":                           `MAC "x" is not a MAC address`,
		"delete neighbor 10.0.0.5/24 eth0":            `IP "10.0.0.5/24" is not an IP address`,
		"delete route 10.1.0.0":                       `NETWORK "10.1.0.0" is not an address with the length`,
	} {
		s := clitest.NewServer(t, 200, clitest.Success)
		got := clitest.Run(t, "", s.Args(args)...)
		if got.Code != session.ExitUsage || !strings.Contains(got.Stderr, want) || strings.Count(got.Stderr, "\n") != 1 || len(s.Requests) != 0 {
			t.Errorf("%s: %+v, requests %q, want %q", args, got, s.Requests, want)
		}
	}
}

// TestNetObjectTables checks columns and cells.
func TestNetObjectTables(t *testing.T) {
	t.Parallel()
	const port = `{"portAttr":[{"portName":"eth0","portNo":2,"zone":"root","portSoftwareInformation":{"osId":2,"portType":1,"portProp":0,"portActive":true,"bpfLoaded":true},` +
		`"portHardwareInformation":{"rawMacAddress":[],"macAddress":"02:00:00:00:00:09","mtu":1500,"link":true,"state":true,"master":"","real":"","tunnelId":0},` +
		`"portStatisticInformation":{"rxBytes":1,"rxPackets":2,"rxErrors":3,"txBytes":4,"txPackets":5,"txErrors":6},"portL3Information":{"routed":true,` +
		`"IPv4Address":["10.0.0.1/24","10.0.0.2/24"],"IPv6Address":[]},` +
		`"portL2Information":{"isPvid":false,"vid":0},"DataplaneSync":0}]}`
	for args, c := range map[string][2]string{
		"get ip -o wide": {`{"ipAttr":[{"dev":"eth0","ipAddress":["10.0.0.1/24","2001:db8::1/64"],"sync":0}]}`, `
| DEVICE NAME |   IP ADDRESS   | SYNC |
|-------------|----------------|------|
| eth0        | 10.0.0.1/24    |    0 |
|             | 2001:db8::1/64 |      |
`},
		"get route": {`{"routeAttr":[{"destinationIPNet":"10.1.0.0/16","gateway":"10.0.0.254","flags":"Ind"}]}`, `
| DESTINATIONIPNET |  GATEWAY   | FLAG |
|------------------|------------|------|
| 10.1.0.0/16      | 10.0.0.254 | Ind  |
`},
		"get nei": {`{"neighborAttr":[{"ipAddress":"10.0.0.5","dev":"eth0","macAddress":"00:11:22:aa:bb:cc"}]}`, `
| IP ADDRESS | DEVICE NAME |    MAC ADDRESS    |
|------------|-------------|-------------------|
| 10.0.0.5   | eth0        | 00:11:22:aa:bb:cc |
`},
		"get vlan -o wide": {`{"vlanAttr":[{"vid":100,"dev":"vlan100","member":[{"dev":"eth0","tagged":true},{"dev":"eth1","tagged":false}],"vlanStatistic":{"inBytes":1,"inPackets":2,"outBytes":3,"outPackets":4}}]}`, `
| DEVICE NAME | VLAN ID |    MEMBER     |      STATISTICS      |
|-------------|---------|---------------|----------------------|
| vlan100     |     100 | Device: eth0  | In/Out byte : 1/3    |
|             |         | tagged: true  | In/Out packets : 2/4 |
|             |         | Device: eth1  |                      |
|             |         | tagged: false |                      |
`},
		"get vxlan": {`{"vxlanAttr":[{"vxlanName":"vxlan78","epIntf":"eth0","vxlanID":78,"peerIP":["10.0.0.2","10.0.0.3"]}]}`, `
| DEVICE NAME | VXLAN ID | ENDPOINT INTERFACE | PEER IP  |
|-------------|----------|--------------------|----------|
| vxlan78     |       78 | eth0               | 10.0.0.2 |
|             |          |                    | 10.0.0.3 |
`},
		"get fdb": {`{"fdbAttr":[{"dev":"eth0","macAddress":"00:11:22:aa:bb:cc"}]}`, `
| DEVICE NAME |    MAC ADDRESS    |
|-------------|-------------------|
| eth0        | 00:11:22:aa:bb:cc |
`},
		"get port": {port, `
| INDEX | PORTNAME |        MAC        | LINK/STATE |       L3INFO       |    L2INFO     |
|-------|----------|-------------------|------------|--------------------|---------------|
|     2 | eth0     | 02:00:00:00:00:09 | true/true  | Routed: true       | IsPVID: false |
|       |          |                   |            | IPv4 : 10.0.0.1/24 | VID : 0       |
|       |          |                   |            |        10.0.0.2/24 |               |
|       |          |                   |            | IPv6 : []          |               |
`},
		"get port -o wide": {port, `
| INDEX | PORTNAME |        MAC        | LINK/STATE | MTU  | ISACTIVE/BPF | PORT TYPE |     STATISTICS      |       L3INFO       |    L2INFO     | SYNC |
|-------|----------|-------------------|------------|------|--------------|-----------|---------------------|--------------------|---------------|------|
|     2 | eth0     | 02:00:00:00:00:09 | true/true  | 1500 | true/true    |         1 | rx/tx byte : 1/4    | Routed: true       | IsPVID: false |    0 |
|       |          |                   |            |      |              |           | rx/tx packets : 2/5 | IPv4 : 10.0.0.1/24 | VID : 0       |      |
|       |          |                   |            |      |              |           | rx/tx error : 3/6   |        10.0.0.2/24 |               |      |
|       |          |                   |            |      |              |           |                     | IPv6 : []          |               |      |
`},
	} {
		got := clitest.Run(t, "", clitest.NewServer(t, 200, c[0]).Args(args)...)
		if got.Code != 0 || got.Stdout != strings.TrimPrefix(c[1], "\n") {
			t.Errorf("%s:\n%s%s, want%s", args, got.Stdout, got.Stderr, c[1])
		}
	}
}
