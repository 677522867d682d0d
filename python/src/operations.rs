//! The operations of the algebra as methods: a row for each, which names the function of expressions that it is.

/// The methods of a class of layouts: those written by hand, then a row `name(parameters; optional ones) = Function "what it is"`.
macro_rules! operations {
    ($class:ident { $($by_hand:tt)* } $(
        $name:ident($($parameter:ident),* $(; $($optional:ident),+)?) = $function:ident $what:literal
    )*) => {
        $crate::value::by_notation! { $class {
            $($by_hand)*

            $(
                #[doc = $what]
                #[pyo3(signature = ($($parameter,)* $($($optional = None,)+)?))]
                fn $name(
                    &self,
                    py: Python<'_>,
                    $($parameter: Bound<'_, PyAny>,)*
                    $($($optional: Option<Bound<'_, PyAny>>,)+)?
                ) -> $crate::failure::Answer<Py<PyAny>> {
                    #[allow(unused_mut, reason = "rows without optional arguments")]
                    let mut objects = vec![$($parameter),*];
                    $($(objects.extend($optional);)+)?
                    let function = reshard_layout::expression::Function::$function;
                    let values = $crate::values::arguments(function, vec![self.0.clone().into()], &objects)?;
                    $crate::values::call(py, function, &values)
                }
            )*

            /// This layout and others side by side, as modes of one.
            #[pyo3(signature = (*modes))]
            fn concat(&self, py: Python<'_>, modes: &Bound<'_, PyTuple>) -> $crate::failure::Answer<Py<PyAny>> {
                let (function, objects) =
                    (reshard_layout::expression::Function::Concat, modes.iter().collect::<Vec<_>>());
                let values = $crate::values::arguments(function, vec![self.0.clone().into()], &objects)?;
                $crate::values::call(py, function, &values)
            }

            /// The value at an index, or at a coordinate nested like the shape: `layout(5)`, `layout(1, 2)`.
            #[pyo3(signature = (*coordinate))]
            fn __call__(
                &self,
                py: Python<'_>,
                coordinate: &Bound<'_, PyTuple>,
            ) -> $crate::failure::Answer<Py<PyAny>> {
                $crate::values::at(py, &self.0.clone().into(), coordinate)
            }
        } }
    };
}

pub(crate) use operations;
