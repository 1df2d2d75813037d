package lb

import (
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
)

// A service of algorithm QUIC reads server IDs in the connection IDs of QUIC, as
// draft-ietf-quic-load-balancers-21 lays them out.

// Limits of connection IDs, in bytes.
const (
	maxServerID      = 15
	minQUICNonce     = 4
	maxQUICPlaintext = 19 // server ID and nonce: of a connection ID's 20 bytes, one is for the configuration
	quicKeyLength    = 16
	maxQUICConfig    = 6 // 7 is for connection IDs without a server ID
)

// QUICConfig is a configuration by which servers make connection IDs. Its number is in their first
// three bits, so servers can move from one configuration to another.
type QUICConfig struct {
	Number uint8
	Nonce  uint8  // bytes of the nonce, if connection IDs are encrypted
	Key    string // of AES-128, in lower-case hexadecimal; "": connection IDs are in plaintext
}

// String writes NUMBER, or NUMBER:NONCE:KEY.
func (c QUICConfig) String() string {
	s := strconv.Itoa(int(c.Number))
	if c.Key != "" {
		s += ":" + strconv.Itoa(int(c.Nonce)) + ":" + c.Key
	}
	return s
}

const quicAllowed = "NUMBER (plaintext) or NUMBER:NONCE:KEY, such as 1:8:8f95f09245765f80256934e50c66207f"

// parseQUICConfig is the inverse of QUICConfig.String.
func parseQUICConfig(field, text string) (c QUICConfig, err error) {
	parts := strings.Split(text, ":")
	if len(parts) != 1 && len(parts) != 3 {
		return c, NewFieldError(field, text, "is not a configuration", quicAllowed)
	}
	n, err := parseInt(field, parts[0], quicAllowed)
	if err != nil || n < 0 || n > maxQUICConfig {
		return c, NewFieldError(field, parts[0], "is not the number of a configuration", "0 to "+strconv.Itoa(maxQUICConfig))
	}
	c.Number = uint8(n)
	if len(parts) == 1 {
		return c, nil
	}
	n, err = parseInt(field, parts[1], quicAllowed)
	if err != nil || n < minQUICNonce || n >= maxQUICPlaintext {
		return c, NewFieldError(field, parts[1], "is not the length of a nonce",
			strconv.Itoa(minQUICNonce)+" to "+strconv.Itoa(maxQUICPlaintext-1)+" bytes")
	}
	c.Nonce = uint8(n)
	if key, err := hex.DecodeString(parts[2]); err != nil || len(key) != quicKeyLength {
		return c, NewFieldError(field, strconv.Itoa(len(parts[2]))+" characters", "are not a key", "32 hexadecimal digits")
	}
	c.Key = strings.ToLower(parts[2])
	return c, nil
}

func parseQUICConfigs(field string, text []string) (list []QUICConfig, err error) {
	list = make([]QUICConfig, len(text))
	for i, s := range text {
		if list[i], err = parseQUICConfig(field, s); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// QUICConfigs returns the configurations of the service's connection IDs: 0 in plaintext, if none
// is given.
func (s *Service) QUICConfigs() []QUICConfig {
	if s.Algorithm == QUIC && len(s.QUIC) == 0 {
		return []QUICConfig{{}}
	}
	return s.QUIC
}

// quicFormat is the first record format with server IDs and configurations of connection IDs.
const quicFormat = ownerFormat + 1

func quicFields() []Field[Service] {
	return []Field[Service]{{
		Name: FieldQUIC, Text: "quic", Record: "quic", Position: 53, Since: quicFormat,
		Property: "serviceArguments.quic", Flag: "quic",
		Help:    "with --select=quic: configurations of connection IDs, each NUMBER for plaintext or NUMBER:NONCE:KEY (default: 0)",
		Allowed: quicAllowed,
		form:    listOf(func(s *Service) *[]QUICConfig { return &s.QUIC }, parseQUICConfigs),
	}}
}

// hexForm is a server ID in hexadecimal digits, stored in lower case.
type hexForm[T any] struct{ textForm[T] }

func hexDigits[T any](at func(*T) *string) form[T] {
	return hexForm[T]{textForm[T]{scalar[T, string]{at}}}
}

func (s hexForm[T]) set(t *T, f *Field[T], v any) error { return s.parse(t, f, v.(string)) }
func (s hexForm[T]) parse(t *T, _ *Field[T], v string) (err error) {
	*s.at(t), err = parseServerID(v)
	return err
}

const serverIDAllowed = "2 to 30 hexadecimal digits, two for each byte"

// parseServerID parses a server ID; "" means none.
func parseServerID(text string) (string, error) {
	id, err := hex.DecodeString(text)
	if err != nil || len(id) > maxServerID {
		return "", NewFieldError(FieldServerID, text, "is not a server ID", serverIDAllowed)
	}
	return strings.ToLower(text), nil
}

// cutServerID cuts #ID from the end of an endpoint's text.
func cutServerID(text string) (rest, id string, err error) {
	rest, written, found := strings.Cut(text, "#")
	if !found {
		return text, "", nil
	}
	if written == "" {
		return rest, "", NewFieldError(FieldServerID, written, "is missing", serverIDAllowed)
	}
	id, err = parseServerID(written)
	return rest, id, err
}

func (s *Service) validateQUIC() error {
	if s.Algorithm != QUIC {
		return s.validateNoQUIC()
	}
	if s.Protocol != UDP {
		return NewFieldError(FieldSelect, QUIC.String(), "is for UDP, and the service is of "+s.Protocol.String(), "another algorithm, or --udp")
	}
	length, seen := 0, make(map[string]Endpoint, len(s.Endpoints))
	for i, e := range s.Endpoints {
		other, twice := seen[e.ServerID]
		switch {
		case e.ServerID == "":
			return NewFieldError(FieldEndpoint, e.AddrPort().String(), "has no server ID, and select is quic", "IP:PORT:WEIGHT#ID, where ID has "+serverIDAllowed)
		case twice:
			return NewFieldError(FieldServerID, e.ServerID, "is that of "+other.AddrPort().String()+" and of "+e.AddrPort().String(), "a server ID for each endpoint")
		case i > 0 && len(e.ServerID) != length:
			return NewFieldError(FieldServerID, e.ServerID, "differs in length from that of "+s.Endpoints[0].AddrPort().String(), strconv.Itoa(length)+" digits")
		}
		length, seen[e.ServerID] = len(e.ServerID), e
	}
	return s.validateQUICConfigs(length / 2)
}

// validateNoQUIC checks that a service of another algorithm has no settings of QUIC.
func (s *Service) validateNoQUIC() error {
	if len(s.QUIC) > 0 {
		return NewFieldError(FieldQUIC, strconv.Itoa(int(s.QUIC[0].Number)), "is set, but select is "+s.Algorithm.String(), "none, or select quic")
	}
	for _, e := range s.Endpoints {
		if e.ServerID != "" {
			return NewFieldError(FieldServerID, e.ServerID, "is set, but select is "+s.Algorithm.String(), "none, or select quic")
		}
	}
	return nil
}

// validateQUICConfigs checks the configurations. length is that of server IDs, in bytes.
func (s *Service) validateQUICConfigs(length int) error {
	var given []uint8
	for _, c := range s.QUICConfigs() {
		number := strconv.Itoa(int(c.Number))
		if slices.Contains(given, c.Number) {
			return NewFieldError(FieldQUIC, number, "is given twice", "each number once")
		}
		given = append(given, c.Number)
		if most := maxQUICPlaintext - length; max(int(c.Nonce), minQUICNonce) > most {
			return NewFieldError(FieldQUIC, number, "has a nonce of "+strconv.Itoa(int(c.Nonce))+" bytes, and server IDs have "+strconv.Itoa(length),
				"up to "+strconv.Itoa(maxQUICPlaintext)+" bytes together")
		}
	}
	return nil
}
