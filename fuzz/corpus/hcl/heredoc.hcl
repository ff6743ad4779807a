a = <<-EOF
    one
      two
    EOF
b = <<X
	y
X
