package files

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"loxilb/internal/api/manifest"
	"loxilb/internal/kinds"
)

// interfaceFiles returns the files in the folder of an interface, in reading order. The existing
// loxilb also writes mtu, mode, real, info and members, which loxilb does not keep.
func interfaceFiles() []string {
	return append([]string{"type", "subintf", "master", "ipv4addr", "ipv6addr", "ipv4neigh", "ipv6neigh", "vxfdbs", "l2fdbs"}, routeFiles()...)
}

// routeFiles are the files with routes.
func routeFiles() []string { return []string{"ipv4route", "ipv6route"} }

// interfaceReader collects the objects of files.
type interfaceReader struct {
	Objects []manifest.Object
	Wrong   manifest.Errors

	tagged    map[string]vlanInterface // interfaces that have the frames of a VLAN, by name
	addresses map[string]netip.Addr    // source address of a tunnel over an interface, by its name
	locals    []tunnelSource
}

// tunnelSource is a requested source address of a tunnel.
type tunnelSource struct {
	at   manifest.Position
	dev  string
	text string
}

type vlanInterface struct {
	dev string
	vid int
}

const supportedLines = "ip addr|route|neigh add, ip link add type bridge|vlan|vxlan, ip link set master, bridge fdb add"

// maxWrongLines bounds the reported wrong lines.
const maxWrongLines = 1000

// Read reads the lines of a file.
func (r *interfaceReader) Read(file, text string) {
	number := 0
	for line := range strings.Lines(text) {
		number++
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		at := manifest.Position{File: file, Line: number, Column: 1}
		made, err := r.line(at, words)
		switch {
		case err != nil && len(r.Wrong) == maxWrongLines:
			return
		case err != nil:
			r.addError(at, err)
		case made != nil:
			r.Objects = append(r.Objects, manifest.FromLine(file, number, made.kind, raw(made.metadata), raw(made.spec)))
		}
	}
}

func (r *interfaceReader) addError(at manifest.Position, err error) {
	r.Wrong = append(r.Wrong, manifest.Error{Position: at, Text: err.Error()})
}

// Finish refuses, after all files, lines that contradict others: loxilb chooses the address of a
// tunnel itself.
func (r *interfaceReader) Finish() {
	for _, l := range r.locals {
		if a, err := netip.ParseAddr(l.text); len(r.Wrong) < maxWrongLines && (err != nil || r.addresses[l.dev] != a) {
			r.addError(l.at, fmt.Errorf("local %.100q is not the first address of %s in the files: omit it, or add the addresses of %s", l.text, l.dev, l.dev))
		}
	}
	r.locals = nil
}

// object is the object that a line requests.
type object struct {
	kind           string
	metadata, spec map[string]any
}

func raw(members map[string]any) json.RawMessage {
	if members == nil {
		return nil
	}
	data, err := json.Marshal(members)
	if err != nil {
		panic(err) // it holds texts and numbers
	}
	return data
}

// line returns the object that a line requests, or nil.
func (r *interfaceReader) line(at manifest.Position, words []string) (*object, error) {
	if len(words) > 1 && (words[1] == "-4" || words[1] == "-6") {
		words = slices.Delete(slices.Clone(words), 1, 2)
	}
	if len(words) < 4 {
		return nil, fmt.Errorf("unsupported line %.200q: use %s", strings.Join(words, " "), supportedLines)
	}
	what, rest := strings.Join(words[:3], " "), words[3:]
	switch what {
	case "ip addr add", "ip address add", "ip a add", "ip addr replace":
		return r.address(rest)
	case "ip route add", "ip r add", "ip route replace":
		return route(rest)
	case "ip neigh add", "ip neighbor add", "ip neighbour add", "ip n add", "ip neigh replace":
		return neighbor(rest)
	case "ip link add":
		return r.linkAdd(at, rest)
	case "ip link set":
		return r.linkSet(rest)
	case "bridge fdb add", "bridge fdb append", "bridge fdb replace":
		return fdb(rest)
	}
	return nil, fmt.Errorf("unsupported line %.200q: use %s", what, supportedLines)
}

// options parses the words after the first one, as names with values. Names that end with ! have no
// value.
func options(words []string, names ...string) (map[string]string, error) {
	out := map[string]string{}
	for i := 0; i < len(words); i++ {
		name := words[i]
		alone := slices.Contains(names, name+"!")
		switch _, twice := out[name]; {
		case !alone && !slices.Contains(names, name):
			return nil, fmt.Errorf("unsupported option %.100q (allowed: %s)", name, strings.Join(names, ", "))
		case twice:
			return nil, fmt.Errorf("%s is given twice", name)
		case alone:
			out[name] = name
		case i+1 == len(words):
			return nil, fmt.Errorf("%s has no value", name)
		default:
			i++
			out[name] = words[i]
		}
	}
	return out, nil
}

// requireValue refuses a value of an option that loxilb determines itself.
func requireValue(o map[string]string, name, own string) error {
	if value, ok := o[name]; ok && !strings.EqualFold(value, own) {
		return fmt.Errorf("%s %.100q is not supported (allowed: %s)", name, value, own)
	}
	return nil
}

// address parses PREFIX dev DEV.
func (r *interfaceReader) address(words []string) (*object, error) {
	o, err := options(words[1:], "dev", "broadcast", "brd", "scope")
	if err != nil {
		return nil, err
	}
	p, _ := netip.ParsePrefix(words[0]) // the object reports its errors
	err = requireValue(o, "scope", "global")
	for _, name := range []string{"broadcast", "brd"} {
		if o[name] != "+" && err == nil {
			err = requireValue(o, name, broadcast(p))
		}
	}
	if err != nil {
		return nil, err
	}
	r.source(o["dev"], p.Addr())
	return &object{kinds.AddressDocument, nil, map[string]any{"ipAddress": words[0], "dev": o["dev"]}}, nil
}

// source records the source address of a tunnel over an interface: the first IPv4 one, or else the
// first that is not link-local.
func (r *interfaceReader) source(dev string, a netip.Addr) {
	have := r.addresses[dev]
	if !a.IsValid() || have.Is4() || have.IsValid() && !a.Is4() || a.Is6() && a.IsLinkLocalUnicast() {
		return
	}
	if r.addresses == nil {
		r.addresses = map[string]netip.Addr{}
	}
	r.addresses[dev] = a
}

// broadcast returns the last address of an IPv4 network, if it is the broadcast address.
func broadcast(p netip.Prefix) string {
	if !p.Addr().Is4() || p.Bits() > 30 {
		return "none"
	}
	a := p.Addr().As4()
	binary.BigEndian.PutUint32(a[:], binary.BigEndian.Uint32(a[:])|math.MaxUint32>>p.Bits())
	return netip.AddrFrom4(a).String()
}

// route parses NETWORK via GATEWAY.
func route(words []string) (*object, error) {
	o, err := options(words[1:], "via", "dev", "proto", "onlink!")
	for _, name := range []string{"dev", "onlink"} {
		if _, ok := o[name]; ok && err == nil {
			err = fmt.Errorf("%s is not supported in a route: omit it, the kernel finds the interface by the gateway", name)
		}
	}
	if err != nil {
		return nil, err
	}
	to := words[0]
	if to == "default" {
		to = "0.0.0.0/0"
		if gateway, err := netip.ParseAddr(o["via"]); err == nil && gateway.Is6() {
			to = "::/0"
		}
	}
	spec := map[string]any{"destinationIPNet": to, "gateway": o["via"]}
	if o["proto"] != "" {
		spec["protocol"] = o["proto"]
	}
	return &object{kinds.RouteDocument, nil, spec}, nil
}

// neighbor parses IP lladdr MAC dev DEV.
func neighbor(words []string) (*object, error) {
	o, err := options(words[1:], "lladdr", "dev", "nud", "permanent!")
	if err != nil {
		return nil, err
	}
	if o["nud"] != "" && o["nud"] != "permanent" {
		return nil, fmt.Errorf("nud %.100q is not supported (allowed: permanent)", o["nud"])
	}
	return &object{kinds.NeighborDocument, nil, map[string]any{"ipAddress": words[0], "macAddress": o["lladdr"], "dev": o["dev"]}}, nil
}

// fdb parses MAC dev DEV, or for a tunnel 00:00:00:00:00:00 dst PEER dev DEV.
func fdb(words []string) (*object, error) {
	o, err := options(words[1:], "dev", "dst", "master!", "self!", "permanent!", "static!")
	if err != nil {
		return nil, err
	}
	switch {
	case o["master"] != "" && (o["permanent"] != "" || o["dst"] != ""):
		return nil, fmt.Errorf("master with permanent or dst is not supported: it is for frames to this machine or of a learned peer")
	case o["dst"] == "":
		return &object{kinds.FDBDocument, nil, map[string]any{"macAddress": words[0], "dev": o["dev"]}}, nil
	case words[0] != "00:00:00:00:00:00":
		return nil, fmt.Errorf("tunnel entry for %.100q is not supported (allowed: 00:00:00:00:00:00, for all)", words[0])
	}
	id, err := numberOf(o["dev"], "vxlan")
	if err != nil {
		return nil, err
	}
	return &object{kinds.VXLANPeerDocument, map[string]any{"vxlanID": id}, map[string]any{"peerIP": o["dst"]}}, nil
}

// linkAdd parses [link DEV] name NAME type bridge|vlan|vxlan, and the options of the type.
func (r *interfaceReader) linkAdd(at manifest.Position, words []string) (*object, error) {
	if words[0] != "link" && words[0] != "name" && words[0] != "type" {
		words = append([]string{"name"}, words...)
	}
	o, err := options(words, "link", "name", "type", "id", "dev", "dstport", "protocol", "local")
	if err == nil {
		err = requireValue(o, "dstport", "4789")
	}
	if err == nil {
		err = requireValue(o, "protocol", "802.1Q")
	}
	if err != nil {
		return nil, err
	}
	switch o["type"] {
	case "bridge":
		vid, err := numberOf(o["name"], "vlan")
		if err == nil {
			err = refuseOptions(o, "link", "id", "dev", "dstport", "protocol", "local")
		}
		if err != nil {
			return nil, err
		}
		return &object{kinds.VLANDocument, nil, map[string]any{"vid": vid}}, nil
	case "vxlan":
		return r.vxlan(at, o)
	case "vlan":
		vid, err := strconv.Atoi(o["id"])
		if err != nil || o["link"] == "" || o["name"] == "" {
			return nil, fmt.Errorf("a VLAN interface is created by: ip link add link DEV name DEV.ID type vlan id ID")
		}
		if err := refuseOptions(o, "dev", "dstport", "local"); err != nil {
			return nil, err
		}
		if r.tagged == nil {
			r.tagged = map[string]vlanInterface{}
		}
		r.tagged[o["name"]] = vlanInterface{o["link"], vid}
		return nil, nil
	}
	return nil, fmt.Errorf("type %.100q is not supported (allowed: bridge (of a VLAN), vlan, vxlan)", o["type"])
}

// refuseOptions refuses options of other types.
func refuseOptions(o map[string]string, names ...string) error {
	for _, name := range names {
		if _, ok := o[name]; ok {
			return fmt.Errorf("%s is not supported for type %s", name, o["type"])
		}
	}
	return nil
}

// vxlan parses a tunnel. Its source address is checked when all addresses are known.
func (r *interfaceReader) vxlan(at manifest.Position, o map[string]string) (*object, error) {
	id, err := numberOf(o["name"], "vxlan")
	if err == nil && o["id"] != strconv.Itoa(id) {
		err = fmt.Errorf("%s has id %.100q: the name of a tunnel must contain its id", o["name"], o["id"])
	}
	if err == nil {
		err = refuseOptions(o, "link", "protocol")
	}
	if err != nil {
		return nil, err
	}
	if text, ok := o["local"]; ok {
		r.locals = append(r.locals, tunnelSource{at, o["dev"], text})
	}
	return &object{kinds.VXLANDocument, nil, map[string]any{"vxlanID": id, "epIntf": o["dev"]}}, nil
}

// linkSet parses DEV master BRIDGE; up requests nothing.
func (r *interfaceReader) linkSet(words []string) (*object, error) {
	if words[0] == "dev" {
		words = words[1:]
	}
	if len(words) == 2 && words[1] == "up" {
		return nil, nil
	}
	if len(words) == 0 {
		return nil, fmt.Errorf("dev has no value")
	}
	o, err := options(words[1:], "master", "up!")
	if err != nil {
		return nil, err
	}
	vid, err := numberOf(o["master"], "vlan")
	if err != nil {
		return nil, err
	}
	spec := map[string]any{"dev": words[0]}
	if sub, ok := r.tagged[words[0]]; ok {
		if sub.vid != vid {
			return nil, fmt.Errorf("%s carries VLAN %d, but is a member of vlan%d", words[0], sub.vid, vid)
		}
		spec = map[string]any{"dev": sub.dev, "tagged": true}
	}
	return &object{kinds.VLANMemberDocument, map[string]any{"vid": vid}, spec}, nil
}

// numberOf returns the number of vlan100 or vxlan78.
func numberOf(name, before string) (int, error) {
	text, ok := strings.CutPrefix(name, before)
	n, err := strconv.Atoi(text)
	if !ok || err != nil || n <= 0 || strconv.Itoa(n) != text {
		return 0, fmt.Errorf("name %.100q is not supported (allowed: %sNUMBER)", name, before)
	}
	return n, nil
}
