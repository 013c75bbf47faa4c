package pretrained

import "ampc"

// small is how the published models draw their weights.
var small = ampc.Normal(0, 0.02)

// linear is torch.nn.Linear under its own names: weight[out,in], bias[out].
func linear(m *ampc.Model, name string, x ampc.Tensor, out int, bias bool) ampc.Tensor {
	s := m.Scope(name)
	w := s.Param("weight", small, out, max(x.Dim(-1), 1))
	var b ampc.Tensor
	if bias {
		b = s.Param("bias", ampc.Zeros(), out)
	}
	return m.Named(name).LinearWith(x, w, b, ampc.LinearWithOptions{TransposeW: true})
}

func layerNorm(m *ampc.Model, name string, x ampc.Tensor, eps float64) ampc.Tensor {
	s, n := m.Scope(name), max(x.Dim(-1), 1)
	return m.Named(name).LayerNormWith(x, s.Param("weight", ampc.Fill(1), n), s.Param("bias", ampc.Zeros(), n), ampc.NormWithOptions{Eps: &eps})
}

func rmsNorm(m *ampc.Model, name string, x ampc.Tensor, eps float64) ampc.Tensor {
	return m.Named(name).RMSNormWith(x, m.Scope(name).Param("weight", ampc.Fill(1), max(x.Dim(-1), 1)), ampc.NormWithOptions{Eps: &eps})
}

// heads turns [B,T,n·width] into [B,n,T,width].
func heads(m *ampc.Model, x ampc.Tensor, n, width int) ampc.Tensor {
	return m.Transpose(m.Reshape(x, 0, 0, n, width), 0, 2, 1, 3)
}

// merge is the inverse of heads.
func merge(m *ampc.Model, x ampc.Tensor, n, width int) ampc.Tensor {
	return m.Reshape(m.Transpose(x, 0, 2, 1, 3), 0, 0, n*width)
}

// tokens checks the shape of ids.
func tokens(m *ampc.Model, ids ampc.Tensor, positions int) bool {
	if m.Err() != nil {
		return false
	}
	if ids.Rank() != 2 {
		m.Fail("ids are %s, want [batch, length]", ids)
		return false
	}
	if t := ids.Dim(1); t < 0 || t > positions {
		m.Fail("ids are %s: want a length that is a number of %d at most, which the model has positions for", ids, positions)
		return false
	}
	return true
}

// positions are the first rows of a table of positions, for the length of ids.
func positions(m *ampc.Model, table, ids ampc.Tensor) ampc.Tensor {
	if t := ids.Dim(1); t > 0 && t < table.Dim(0) {
		return m.Slice(table, []int{0}, []int{0}, []int{t})
	}
	return table
}

// activation is one of the names that configurations use.
func activation(m *ampc.Model, name string, x ampc.Tensor) ampc.Tensor {
	switch name {
	case "gelu_new", "gelu_pytorch_tanh":
		return m.GeluTanh(x)
	case "gelu":
		return m.Gelu(x)
	case "silu", "swish":
		return m.Silu(x)
	}
	return m.Relu(x)
}

// activations are the names that activation knows.
var activations = []string{"gelu_new", "gelu_pytorch_tanh", "gelu", "silu", "swish", "relu"}
