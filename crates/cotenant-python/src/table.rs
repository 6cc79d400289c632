//! Tables on their way to data frames: numbers go as bytes, which `NumPy` takes as they are.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

/// In a column of integers: nothing is known.
const ABSENT: i64 = i64::MIN;

/// A column by its kind.
enum Column {
    /// NaN where nothing is known.
    Floats(Vec<f64>),
    /// [`ABSENT`] where nothing is known.
    Integers(Vec<i64>),
    Texts(Vec<String>),
}

/// Content of a cell.
pub enum Cell {
    Float(Option<f64>),
    Integer(Option<i64>),
    Text(String),
}

impl From<f64> for Cell {
    fn from(value: f64) -> Self {
        Self::Float(Some(value))
    }
}

impl From<Option<f64>> for Cell {
    fn from(value: Option<f64>) -> Self {
        Self::Float(value)
    }
}

impl From<u64> for Cell {
    fn from(value: u64) -> Self {
        Self::Integer(i64::try_from(value).ok())
    }
}

impl From<u32> for Cell {
    fn from(value: u32) -> Self {
        Self::Integer(Some(value.into()))
    }
}

impl From<Option<u32>> for Cell {
    fn from(value: Option<u32>) -> Self {
        Self::Integer(value.map(Into::into))
    }
}

impl From<Option<bool>> for Cell {
    fn from(value: Option<bool>) -> Self {
        Self::Integer(value.map(Into::into))
    }
}

impl From<usize> for Cell {
    fn from(value: usize) -> Self {
        Self::Integer(i64::try_from(value).ok())
    }
}

impl From<&str> for Cell {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for Cell {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

/// Columns by name, all of one length.
pub struct Table(Vec<(String, Column)>);

impl Table {
    /// Without rows; the kind of each column is that of its cell here.
    pub fn new(columns: impl IntoIterator<Item = (impl Into<String>, Cell)>) -> Self {
        let column = |kind: Cell| match kind {
            Cell::Float(_) => Column::Floats(Vec::new()),
            Cell::Integer(_) => Column::Integers(Vec::new()),
            Cell::Text(_) => Column::Texts(Vec::new()),
        };
        Self(columns.into_iter().map(|(name, kind)| (name.into(), column(kind))).collect())
    }

    /// Adds a row, a cell for each column in its order and of its kind.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let mut cells = cells.into_iter();
        for (name, column) in &mut self.0 {
            match (column, cells.next()) {
                (Column::Floats(column), Some(Cell::Float(value))) => column.push(value.unwrap_or(f64::NAN)),
                (Column::Integers(column), Some(Cell::Integer(value))) => column.push(value.unwrap_or(ABSENT)),
                (Column::Texts(column), Some(Cell::Text(value))) => column.push(value),
                _ => unreachable!("the cell of the column {name} is of its kind"),
            }
        }
        debug_assert!(cells.next().is_none(), "a row has no more cells than there are columns");
    }

    /// Leaves out columns without any known value, among those that `may` names.
    pub fn without_unknown(&mut self, may: impl Fn(&str) -> bool) {
        let known = |column: &Column| !matches!(column, Column::Floats(values) if values.iter().all(|v| v.is_nan()));
        self.0.retain(|(name, column)| !may(name) || known(column));
    }
}

impl<'py> IntoPyObject<'py> for Table {
    type Target = PyDict;
    type Output = Bound<'py, PyDict>;
    type Error = PyErr;

    /// A dictionary from names to pairs: the type as `NumPy` names it with the bytes of the numbers, or `str` with a
    /// list.
    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (name, column) in self.0 {
            let bytes = |bytes: Vec<u8>| PyBytes::new(py, &bytes).into_bound_py_any(py);
            let (kind, values) = match column {
                Column::Floats(values) => ("<f8", bytes(values.iter().flat_map(|v| v.to_le_bytes()).collect())?),
                Column::Integers(values) => ("<i8", bytes(values.iter().flat_map(|v| v.to_le_bytes()).collect())?),
                Column::Texts(values) => ("str", PyList::new(py, values)?.into_any()),
            };
            dict.set_item(name, (kind, values))?;
        }
        Ok(dict)
    }
}
