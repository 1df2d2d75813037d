package pkt

// Proto is the first word of a packet's text: the innermost protocol that the text describes.
type Proto uint8

// The protocols of the language.
const (
	Raw   Proto = iota // bytes, from the first of the Ethernet header
	Eth                // a frame that is not IP
	IP                 // an IP packet with other content than the ones below
	TCP                //
	UDP                //
	SCTP               //
	ICMP               // over IPv4
	ICMP6              // over IPv6
	protos
)

func (p Proto) String() string {
	return [...]string{"raw", "eth", "ip", "tcp", "udp", "sctp", "icmp", "icmp6", "?"}[min(p, protos)]
}

// Field names one value of a packet.
type Field uint8

// The fields, in the order in which a line prints them.
const (
	Src Field = iota
	SrcPort
	Dst
	DstPort
	Flags
	Type
	Code
	Seq
	Ack
	Win
	Urg
	TCPOptions
	Tag
	Chunks
	EchoID
	EchoSeq
	MTU
	Protocol
	TTL
	TOS
	Flow
	IPID
	DF
	MF
	Frag
	IPOptions
	Ext
	Len
	Data
	From
	To
	VLAN
	EtherType
	Version
	IHL
	IPLen
	IPSum
	DataOffset
	UDPLen
	Sum
	CRC
	Pad
	Trunc
	GSO
	Head
	fields
)

// kind is the format of a value.
type kind uint8

const (
	kindNum    kind = iota // decimal; hexadecimal with 0x is understood
	kindHex                // a number written in hexadecimal
	kindFlag               // present or not
	kindAddr               // in the head of the line only
	kindPort               // in the head of the line only
	kindFlags              // TCP flags, after the head
	kindICMP               // type and code, after the head when they have names
	kindMAC                // 02:00:00:00:00:01
	kindBytes              // hexadecimal digits
	kindSum                // right, bad, zero, partial or a number
	kindVLAN               // see vlan.go
	kindExt                // see ext.go
	kindTCPOpt             // see tcpopt.go
	kindChunks             // see sctp.go
)

// spec describes a field.
type spec struct {
	name    string
	kind    kind
	bits    uint   // of a number
	on      uint   // protocols that have it, one bit each
	family  uint   // 4, 6, or 0 for both
	derived bool   // follows from the rest: verified even if a pattern does not state it
	def     uint64 // sent if it is not stated
}

const (
	onTCP   = 1 << TCP
	onUDP   = 1 << UDP
	onSCTP  = 1 << SCTP
	onIP    = 1<<IP | onPort | onICMP
	onICMP  = 1<<ICMP | 1<<ICMP6
	onPort  = onTCP | onUDP | onSCTP
	onFrame = 1<<Eth | onIP
)

// spec returns the field's description. It is a function, not a variable, so it is constant.
func (f Field) spec() spec {
	return [...]spec{
		Src:        {name: "src", kind: kindAddr, on: onIP},
		SrcPort:    {name: "sport", kind: kindPort, bits: 16, on: onPort, def: 1024},
		Dst:        {name: "dst", kind: kindAddr, on: onIP},
		DstPort:    {name: "dport", kind: kindPort, bits: 16, on: onPort, def: 80},
		Flags:      {name: "flags", kind: kindFlags, bits: 8, on: onTCP, def: FlagACK},
		Type:       {name: "type", kind: kindICMP, bits: 8, on: onICMP},
		Code:       {name: "code", kind: kindICMP, bits: 8, on: onICMP},
		Seq:        {name: "seq", kind: kindNum, bits: 32, on: onTCP},
		Ack:        {name: "ack", kind: kindNum, bits: 32, on: onTCP},
		Win:        {name: "win", kind: kindNum, bits: 16, on: onTCP, def: 65535},
		Urg:        {name: "urg", kind: kindNum, bits: 16, on: onTCP},
		TCPOptions: {name: "opt", kind: kindTCPOpt, on: onTCP},
		Tag:        {name: "tag", kind: kindNum, bits: 32, on: onSCTP},
		Chunks:     {name: "chunks", kind: kindChunks, on: onSCTP},
		EchoID:     {name: "id", kind: kindNum, bits: 16, on: onICMP},
		EchoSeq:    {name: "seq", kind: kindNum, bits: 16, on: onICMP},
		MTU:        {name: "mtu", kind: kindNum, bits: 32, on: onICMP},
		Protocol:   {name: "proto", kind: kindNum, bits: 8, on: 1 << IP, def: 255},
		TTL:        {name: "ttl", kind: kindNum, bits: 8, on: onIP, def: 64},
		TOS:        {name: "tos", kind: kindHex, bits: 8, on: onIP},
		Flow:       {name: "flow", kind: kindHex, bits: 20, on: onIP, family: 6},
		IPID:       {name: "ipid", kind: kindNum, bits: 16, on: onIP, family: 4},
		DF:         {name: "df", kind: kindFlag, on: onIP, family: 4},
		MF:         {name: "mf", kind: kindFlag, on: onIP, family: 4},
		Frag:       {name: "frag", kind: kindNum, bits: 16, on: onIP, family: 4},
		IPOptions:  {name: "ipopt", kind: kindBytes, on: onIP, family: 4},
		Ext:        {name: "ext", kind: kindExt, on: onIP, family: 6},
		Len:        {name: "len", kind: kindNum, bits: 16, on: onFrame},
		Data:       {name: "data", kind: kindBytes, on: onFrame | 1<<Raw},
		From:       {name: "from", kind: kindMAC, on: onFrame, def: 0x020000000001},
		To:         {name: "to", kind: kindMAC, on: onFrame, def: 0x020000000002},
		VLAN:       {name: "vlan", kind: kindVLAN, on: onFrame},
		EtherType:  {name: "ethertype", kind: kindHex, bits: 16, on: onFrame, derived: true},
		Version:    {name: "version", kind: kindNum, bits: 4, on: onIP, derived: true},
		IHL:        {name: "ihl", kind: kindNum, bits: 4, on: onIP, family: 4, derived: true},
		IPLen:      {name: "iplen", kind: kindNum, bits: 16, on: onIP, derived: true},
		IPSum:      {name: "ipcsum", kind: kindSum, bits: 16, on: onIP, family: 4, derived: true},
		DataOffset: {name: "doff", kind: kindNum, bits: 4, on: onTCP, derived: true},
		UDPLen:     {name: "udplen", kind: kindNum, bits: 16, on: onUDP, derived: true},
		Sum:        {name: "csum", kind: kindSum, bits: 16, on: onTCP | onUDP | onICMP, derived: true},
		CRC:        {name: "crc", kind: kindSum, bits: 32, on: onSCTP, derived: true},
		Pad:        {name: "pad", kind: kindNum, bits: 12, on: onIP, derived: true},
		Trunc:      {name: "trunc", kind: kindNum, bits: 16, on: onFrame, derived: true},
		GSO:        {name: "gso", kind: kindNum, bits: 16, on: onPort},
		Head:       {name: "head", kind: kindNum, bits: 16, on: onFrame},
		fields:     {},
	}[min(f, fields)]
}

// String returns the field's name in a line.
func (f Field) String() string { return f.spec().name }

// has reports whether packets of this protocol have the field.
func (p Proto) has(f Field) bool { return f.spec().on&(1<<p) != 0 }

// fieldNamed finds the field that a packet of this protocol calls name.
func (p Proto) fieldNamed(name string) (Field, bool) {
	for f := range fields {
		if s := f.spec(); s.name == name && s.on&(1<<p) != 0 {
			return f, true
		}
	}
	return 0, false
}

// TCP flags, as in the header.
const (
	FlagFIN = 1 << iota
	FlagSYN
	FlagRST
	FlagPSH
	FlagACK
	FlagURG
	FlagECE
	FlagCWR
)

// flagLetters is in the order of the bits.
const flagLetters = "FSRPAUEC"

// Known reports whether the language has the field.
func (f Field) Known() bool { return f < fields }
